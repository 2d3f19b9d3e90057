"""Which service a command talks to: options for what is no secret, the environment for what is."""

import argparse
import shlex
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from speechframe.settings import Settings

KEY_VARIABLE = "SPEECHFRAME_API_KEY"

_DESCRIPTION = (
    f"The key is read from {KEY_VARIABLE} (of dubbing from SPEECHFRAME_DUB_API_KEY, where it is another one) "
    "and is no option: every user of a machine can read command lines. "
    "With no key and no address, the embedded local service is used."
)


def _refuse_key(_: str) -> NoReturn:
    """Say where a key belongs, and never repeat it."""
    raise argparse.ArgumentTypeError(
        f"a key is not taken here: every user of this machine can read it. Set {KEY_VARIABLE} instead, and "
        "take another key if this one was meant to stay secret"
    )


def _address(words: str) -> str:
    from speechframe.settings.hidden import without_keys

    masked: str = without_keys(words)
    return masked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a service."""
    group = parser.add_argument_group("service", _DESCRIPTION)
    words = "the service's address (SPEECHFRAME_BASE_URL)"
    group.add_argument("--base-url", type=_address, metavar="URL", help=words)
    group.add_argument(
        "--region",
        action="append",
        dest="regions",
        metavar="NAME",
        help="a region to use, in order of preference; repeatable (SPEECHFRAME_REGIONS)",
    )
    group.add_argument(
        "--profile", metavar="NAME", help="a profile of speechframe.toml, and its name in run folders"
    )
    group.add_argument("--api-key", "--key", nargs="?", const="", type=_refuse_key, help=argparse.SUPPRESS)


def service(options: argparse.Namespace) -> "Settings | None":
    """Return the chosen service as the verbs take it; None is the embedded local one.

    Raises
    ------
    SettingsError
        When what is set is incomplete or contradicts itself.
    """
    from speechframe import settings

    found = settings.resolve(base_url=options.base_url, regions=options.regions, profile=options.profile)
    return None if found.is_local else found


def again(options: argparse.Namespace) -> str:
    """Return the given options as words for a command to type next."""
    words = []
    for name, value in (("--base-url", options.base_url), ("--profile", options.profile)):
        words += [name, value] if value is not None else []
    for region in options.regions or ():
        words += ["--region", region]
    return "".join(f" {shlex.quote(word)}" for word in words)
