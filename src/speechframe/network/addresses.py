"""Recognition of addresses of the public Internet, by our own table. That of Python differs between versions.

The table contains the blocks of IANA's registries of special-purpose addresses that are not "globally
reachable". A few smaller blocks in them, such as 192.0.0.9/32 and 2001:20::/28, are reachable. They serve
anycast services and identifiers but no files, so they count as not public too.
"""

from ipaddress import IPv4Address, IPv6Address, ip_network

_NOT_PUBLIC_BLOCKS = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private use
            "100.64.0.0/10",  # behind a provider's address translation
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link-local, and the metadata service of clouds, which returns secrets
            "172.16.0.0/12",  # private use
            "192.0.0.0/24",  # protocol assignments, and the metadata service of some clouds
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4, no longer in use
            "192.168.0.0/16",  # private use
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            # Not in a registry. Virtual machines of Azure reach their host by this address.
            "168.63.129.16/32",
            # All blocks outside of 2000::/3, which alone has addresses of networks. The others have loopback,
            # private, link-local and multicast addresses.
            "::/3",
            "4000::/2",
            "8000::/1",
            "2001::/23",  # protocol assignments, such as Teredo
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
        ),
    )
)
_NAT64_BLOCK = ip_network("64:ff9b::/96")
_IPV4_BITS = 0xFFFF_FFFF


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is public. If it contains an IPv4 address, the IPv4 address decides.

    Examples
    --------
    >>> from ipaddress import ip_address
    >>> is_public(ip_address("2606:4700::1111")), is_public(ip_address("::ffff:127.0.0.1"))
    (True, False)
    """
    inner = find_inner_ipv4(address) or address
    return not any(inner in block for block in _NOT_PUBLIC_BLOCKS)


def find_inner_ipv4(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address inside an IPv6 address, or None if there is none.

    A gateway would forward packets to the IPv4 address.
    """
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64_BLOCK:
        return IPv4Address(int(address) & _IPV4_BITS)
    return address.ipv4_mapped or address.sixtofour
