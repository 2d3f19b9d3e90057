"""Which addresses are public: those that a service may visit for whoever asks it to.

What is behind the others is this machine, its network, or the machine that it
is a guest of; they trust whoever reaches them.
"""

import asyncio
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

__all__ = ["Unresolved", "addresses_of", "is_public"]

Address = IPv4Address | IPv6Address

# What `is_global` lets pass. Some are assigned for special uses after this Python's tables were made; in
# others an IPv4 address is written that a gateway on the way may go to; the last IPv4 address is the
# host side of a large provider's virtual machines.
_HOLES = tuple(
    map(
        ip_network,
        (
            "192.88.99.0/24",
            "168.63.129.16/32",
            "::/96",
            "64:ff9b:1::/48",
            "2001::/23",
            "3fff::/20",
            "5f00::/16",
            "fec0::/10",
        ),
    )
)
_NAT64 = ip_network("64:ff9b::/96")
_LOW_BITS = 0xFFFF_FFFF


class Unresolved(Exception):
    """A name that has no address."""


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public Internet, and every address that is written inside it.

    Examples
    --------
    >>> from ipaddress import ip_address
    >>> is_public(ip_address("2606:4700::1111")), is_public(ip_address("::ffff:127.0.0.1"))
    (True, False)
    """
    inner = list(_written_inside(address))
    if inner:
        return all(map(is_public, inner))
    return (
        address.is_global
        and not (address.is_multicast or address.is_reserved or address.is_unspecified)
        and not any(address in hole for hole in _HOLES if hole.version == address.version)
    )


def _written_inside(address: Address) -> Iterator[IPv4Address]:
    if isinstance(address, IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address in _NAT64:
        yield IPv4Address(int(address) & _LOW_BITS)


async def addresses_of(host: str, port: int) -> tuple[Address, ...]:
    """Return every address of a name, or the one that a literal stands for, however it is written.

    Raises
    ------
    Unresolved
        When there is none.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unresolved from None
    # A scope ("%eth0") says where a link-local address lies, not what it is.
    addresses = tuple(dict.fromkeys(ip_address(str(there[4][0]).partition("%")[0]) for there in found))
    if not addresses:
        raise Unresolved
    return addresses
