"""Hosts and ports in addresses of others: which are this machine, a private network, or no web server."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

from speechframe._addresses import is_public, written_inside

REFUSED_PORTS = frozenset(
    {
        0,
        1,
        7,
        9,
        11,
        13,
        15,
        17,
        19,
        20,
        21,
        22,
        23,
        25,
        37,
        42,
        43,
        53,
        69,
        77,
        79,
        87,
        95,
        101,
        102,
        103,
        104,
    }
    | {109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514}
    | {515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723}
    | {2049, 3659, 4045, 4190, 5060, 5061, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080}
)
"""Ports of programs that take a request for orders: the "bad ports" of the Fetch standard, and Redis."""

MAX_HOST_CHARACTERS = 253
"""No name in the DNS is longer."""

_ONE_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_NUMBER = r"(?:0x[0-9a-f]*|[0-9]+)"
# The C library reads 2130706433, 0x7f.1 and 0177.1 as addresses, too; nobody who means well writes them.
_DISGUISED = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{0,3}}")


def bare(host: str | None) -> str:
    """Return a host in the spelling that is compared: lower case, without a final dot.

    Examples
    --------
    >>> bare("LocalHost.")
    'localhost'
    """
    return (host or "").lower().rstrip(".")


def machine(host: str | None) -> str:
    """Return what stands for a host: ``localhost``, ``127.0.0.1`` and ``::1`` are one.

    Examples
    --------
    >>> machine("127.0.0.1"), machine("127.0.0.2")
    ('localhost', '127.0.0.2')
    """
    name = bare(host)
    return "localhost" if name in _ONE_MACHINE else name


def is_disguised(host: str) -> bool:
    """Return whether a host is an address in a spelling that only few programs read as one.

    Examples
    --------
    >>> [is_disguised(host) for host in ("2130706433", "127.1", "127.0.0.1", "3.example")]
    [True, True, False, False]
    """
    return _DISGUISED.fullmatch(bare(host)) is not None and address_of(host) is None


def is_this_machine(host: str) -> bool:
    """Return whether a host is this machine, however it is written.

    Examples
    --------
    >>> is_this_machine("::ffff:127.0.0.1"), is_this_machine("a.localhost"), is_this_machine("0.0.0.0")
    (True, True, True)
    """
    name = bare(host)
    address = address_of(name)
    if address is not None:
        return address.is_loopback or address.is_unspecified
    return name == "localhost" or name.endswith(".localhost")


def is_private(host: str) -> bool:
    """Return whether a host is an address that does not belong to the public internet.

    Examples
    --------
    >>> [is_private(host) for host in ("10.0.0.5", "192.0.0.192", "8.8.8.8", "example.com")]
    [True, True, False, False]
    """
    address = address_of(host)
    return address is not None and not is_public(address)


def is_link_local(host: str) -> bool:
    """Return whether a host is an address of the link, where cloud machines ask for their own secrets."""
    address = address_of(host)
    return address is not None and address.is_link_local


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is, the inner one where IPv6 wraps IPv4; None for a name."""
    try:
        address = ip_address(bare(host).partition("%")[0])
    except ValueError:
        return None
    return written_inside(address) or address
