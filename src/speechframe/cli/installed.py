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

PACKAGE = "speechframe"

_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?\s*([^;]*)")
"""A requirement in the metadata: name of the package, its extras, and its versions."""
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
"""The marker of a requirement that belongs to an extra."""
_AT_LEAST = re.compile(r">=\s*([0-9][0-9.]*)")
"""The lowest allowed version in a requirement."""


@dataclass(frozen=True)
class Needed:
    """A package that an extra requires, and its installed version.

    Parameters
    ----------
    name
        Name of the package.
    at_least
        The lowest version that works. Empty if any version works.
    found
        The installed version. None if the package is not installed.
    """

    name: str
    at_least: str
    found: str | None

    @property
    def is_there(self) -> bool:
        """Whether the package is installed in a version that works."""
        return self.found is not None and _figures(self.found) >= _figures(self.at_least)

    def __str__(self) -> str:
        """Return the name and the version. If the package is missing or too old, the text contains this."""
        if self.found is None:
            return f"{self.name} is missing"
        return f"{self.name} {self.found}" + ("" if self.is_there else f" is older than {self.at_least}")


def _figures(words: str) -> tuple[int, ...]:
    # Ignore suffixes such as rc1 and .post2, which matter little for a lowest version.
    found = [re.match(r"\d+", part) for part in words.split(".")]
    figures = [int(match.group()) for match in found if match]
    while figures and figures[-1] == 0:
        figures.pop()
    return tuple(figures)


def extras() -> dict[str, list[Needed]]:
    """Return the required packages of each extra, by the name of the extra.

    Raises
    ------
    PackageNotFoundError
        If speechframe is not installed, for example because it runs from a source folder.

    Examples
    --------
    >>> sorted(package.name for package in extras()["speed"])
    ['orjson', 'pybase64']
    """
    package = distribution(PACKAGE)
    names = package.metadata.get_all("Provides-Extra") or []
    return {name: list(_needed(package, name)) for name in names}


def _needed(package: Distribution, extra: str) -> Iterator[Needed]:
    for words in package.requires or ():
        requirement, _, marker = words.partition(";")
        named = _EXTRA.search(marker)
        match = _REQUIREMENT.match(requirement)
        if named is None or named.group(1) != extra or match is None:
            continue
        name, below, figures = match.groups()
        if name == PACKAGE:
            for other in (below or "").split(","):
                yield from _needed(package, other.strip())
        else:
            lowest = _AT_LEAST.search(figures)
            yield Needed(name, lowest.group(1) if lowest else "", _version(name))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def install_command(extra: str) -> str:
    """Return the command that installs an extra into the environment of this process."""
    python = shlex.quote(sys.executable)
    # An environment that uv created contains no pip.
    tool = f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"
    return f"{tool} {_target(extra)}"


def _target(extra: str) -> str:
    try:
        origin = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = str(origin.get("url", ""))
    if not url:
        return shlex.quote(f"{PACKAGE}[{extra}]")
    if origin.get("dir_info", {}).get("editable"):
        folder = url2pathname(urlsplit(url).path)
        return "-e " + shlex.quote(f"{folder}[{extra}]")
    return shlex.quote(f"{PACKAGE}[{extra}] @ {url}")


def exact(command: str | None) -> str | None:
    """Adapt an install command to this environment.

    ``pip install 'speechframe[x]'`` becomes :func:`install_command`. Any other command stays unchanged.
    """
    if command is None:
        return None
    found = re.fullmatch(rf"pip install '{PACKAGE}\[(\w+)\]'", command)
    return install_command(found.group(1)) if found else command
