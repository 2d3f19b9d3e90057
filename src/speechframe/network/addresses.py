"""Which addresses belong to the public Internet, by a table of ours: that of Python differs with its version.

It has the blocks of IANA's registries of special-purpose addresses that are not "globally reachable". A few
smaller blocks within them are (192.0.0.9/32, 2001:20::/28 and their like): services that are found by
anycast, and identifiers. No file is at any of them, so they are not told apart.
"""

from ipaddress import IPv4Address, IPv6Address, ip_network

__all__ = ["is_public", "written_inside"]

_NOT_PUBLIC = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private use
            "100.64.0.0/10",  # behind a provider's address translation
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # the link, and secrets of cloud machines
            "172.16.0.0/12",  # private use
            "192.0.0.0/24",  # protocol assignments, and secrets of cloud machines
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4, no longer in use
            "192.168.0.0/16",  # private use
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            # In no registry: the host side of a large provider's virtual machines.
            "168.63.129.16/32",
            # Networks get addresses of 2000::/3 alone. Loopback, private use, the link, multicast are here.
            "::/3",
            "4000::/2",
            "8000::/1",
            "2001::/23",  # protocol assignments, such as Teredo
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
        ),
    )
)
_NAT64 = ip_network("64:ff9b::/96")
_LOW_BITS = 0xFFFF_FFFF


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address belongs to the public Internet; one with an IPv4 address inside is what that one is.

    Examples
    --------
    >>> from ipaddress import ip_address
    >>> is_public(ip_address("2606:4700::1111")), is_public(ip_address("::ffff:127.0.0.1"))
    (True, False)
    """
    inner = written_inside(address) or address
    return not any(inner in block for block in _NOT_PUBLIC)


def written_inside(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that a gateway on the way would go to."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & _LOW_BITS)
    return address.ipv4_mapped or address.sixtofour
