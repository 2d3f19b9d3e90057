"""Find out which packages the extras of speechframe require, and which of these are installed."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from importlib.util import find_spec
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import Requirement
from packaging.version import Version

PACKAGE_NAME = "speechframe"


@dataclass(frozen=True)
class RequiredPackage:
    """A package that an extra requires, and its installed version.

    Parameters
    ----------
    name
        Name of the package.
    at_least
        The lowest version that works. "0" if any version works.
    installed_version
        The installed version. None if the package is not installed.
    """

    name: str
    at_least: str
    installed_version: str | None

    @property
    def is_usable(self) -> bool:
        """Whether the package is installed in a version that works."""
        # Ignore suffixes such as rc1 and .post2, which matter little for a lowest version.
        if self.installed_version is None:
            return False
        return Version(Version(self.installed_version).base_version) >= Version(self.at_least)

    def __str__(self) -> str:
        """Return the name and the version. If the package is missing or too old, the text contains this."""
        if self.installed_version is None:
            return f"{self.name} is missing"
        return f"{self.name} {self.installed_version}" + (
            "" if self.is_usable else f" is older than {self.at_least}"
        )


def list_extras() -> dict[str, list[RequiredPackage]]:
    """Return the required packages of each extra, by the name of the extra.

    Raises
    ------
    PackageNotFoundError
        If speechframe is not installed, for example because it runs from a source folder.

    Examples
    --------
    >>> sorted(package.name for package in list_extras()["speed"])
    ['orjson', 'pybase64']
    """
    package = distribution(PACKAGE_NAME)
    names = package.metadata.get_all("Provides-Extra") or []
    return {name: list(_list_required(package, name)) for name in names}


def _list_required(package: Distribution, extra: str) -> Iterator[RequiredPackage]:
    for requirement in map(Requirement, package.requires or ()):
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": extra}):
            continue
        if requirement.name == PACKAGE_NAME:
            for other in sorted(requirement.extras):
                yield from _list_required(package, other)
        else:
            lowest = next((each.version for each in requirement.specifier if each.operator == ">="), "0")
            yield RequiredPackage(requirement.name, lowest, _find_version(requirement.name))


def _find_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def make_install_command(extra: str) -> str:
    """Return the command that installs an extra into the environment of this process."""
    python = shlex.quote(sys.executable)
    # An environment that uv created contains no pip.
    tool = f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"
    return f"{tool} {_make_install_target(extra)}"


def _make_install_target(extra: str) -> str:
    try:
        origin = json.loads(distribution(PACKAGE_NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = str(origin.get("url", ""))
    if not url:
        return shlex.quote(f"{PACKAGE_NAME}[{extra}]")
    if origin.get("dir_info", {}).get("editable"):
        folder = url2pathname(urlsplit(url).path)
        return "-e " + shlex.quote(f"{folder}[{extra}]")
    return shlex.quote(f"{PACKAGE_NAME}[{extra}] @ {url}")


def adapt_install_command(command: str | None) -> str | None:
    """Adapt an install command to this environment.

    ``pip install 'speechframe[x]'`` becomes :func:`make_install_command`. Any other command stays unchanged.
    """
    if command is None:
        return None
    found = re.fullmatch(rf"pip install '{PACKAGE_NAME}\[(\w+)\]'", command)
    return make_install_command(found.group(1)) if found else command
