"""Choose the service of a command. Options set the address, and environment variables set the key."""

import argparse
import shlex
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from speechframe.settings import Settings

KEY_VARIABLE = "SPEECHFRAME_API_KEY"

_DESCRIPTION = (
    f"Set the key in {KEY_VARIABLE}, and another key for dubbing in SPEECHFRAME_DUB_API_KEY. A key is not an "
    "option, because every user of a machine can read command lines. "
    "If no key and no address are set, the embedded local service is used."
)


def _refuse_key(_: str) -> NoReturn:
    """Refuse a key on the command line. The message does not repeat the key."""
    raise argparse.ArgumentTypeError(
        "a key on the command line is refused, because every user of this machine can read it. "
        f"Set {KEY_VARIABLE} instead. This key is no longer secret, so replace it"
    )


def _mask_address(address: str) -> str:
    from speechframe.settings.hidden import mask_address

    masked: str = mask_address(address)
    return masked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a service."""
    group = parser.add_argument_group("service", _DESCRIPTION)
    help_text = "the service's address (SPEECHFRAME_BASE_URL)"
    group.add_argument("--base-url", type=_mask_address, metavar="URL", help=help_text)
    group.add_argument(
        "--region",
        action="append",
        dest="regions",
        metavar="NAME",
        help="a region to use (SPEECHFRAME_REGIONS). Repeat it for more regions, the preferred one first",
    )
    group.add_argument(
        "--profile", metavar="NAME", help="a profile of speechframe.toml. Run folders contain its name"
    )
    group.add_argument("--api-key", "--key", nargs="?", const="", type=_refuse_key, help=argparse.SUPPRESS)


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses the workers of a command that makes no calls."""
    help_text = "address of a Dask scheduler whose workers do the work, such as tcp://scheduler:8786"
    parser.add_argument("--executor", metavar="ADDRESS", help=help_text)


def choose_service(options: argparse.Namespace) -> "Settings | None":
    """Return the settings of the chosen service, or None for the embedded local service.

    Raises
    ------
    SettingsError
        If the settings are incomplete or contradict each other.
    """
    from speechframe import settings

    found = settings.resolve_settings(
        base_url=options.base_url, regions=options.regions, profile=options.profile
    )
    return None if found.is_local else found


def repeat_options(options: argparse.Namespace) -> str:
    """Return the service options of this command line as text, to be added to a suggested command."""
    arguments = []
    for name, value in (("--base-url", options.base_url), ("--profile", options.profile)):
        arguments += [name, value] if value is not None else []
    for region in options.regions or ():
        arguments += ["--region", region]
    return "".join(f" {shlex.quote(word)}" for word in arguments)
