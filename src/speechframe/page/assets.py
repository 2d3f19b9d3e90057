"""Scripts and styles of widgets: small modules written by hand, put together here instead of by a bundler.

A notebook takes one script a widget, and a page that is one file has nowhere to import from. So the modules a
script imports are put before it, without the lines that import and the word that exports. That is all of the
module system they use: names are unique across modules, and imports stand on one line. What only we read,
comments on lines of their own and indents, stays here.
"""

import re
from functools import cache
from importlib.resources import files
from posixpath import dirname, join, normpath

__all__ = ["SCRIPTS", "script", "style"]

SCRIPTS = (
    "browser", "clip_player", "comparison", "dashboard", "dub_player", "gallery", "listening",
    "stream_player",
)  # fmt: skip
"""The widgets that have a script."""

_IMPORT = re.compile(r'^import \{[^}]*\} from "(?P<path>\.{1,2}/[\w/]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async )?(function|const|class|let)\b)", re.MULTILINE)
_DEFAULT = "export default "
# No text of a script goes over several lines.
_OURS = re.compile(r"^[ \t]*(?:/\*\*.*?\*/\n|//[^\n]*\n)?", re.DOTALL | re.MULTILINE)


@cache
def script(name: str, *, as_page: bool = False, model: str = "page") -> str:
    """Return a widget's script, with everything it imports before it.

    Parameters
    ----------
    name
        One of :data:`SCRIPTS`.
    as_page
        As the script of a page: the widget is the constant ``widget`` instead of the module's export.
    model
        The core module that a page's model comes from.

    Examples
    --------
    >>> "export default " in script("clip_player"), "import " in script("clip_player")
    (True, False)
    """
    parts: dict[str, str] = {}
    _collect(f"{name}.js", parts)
    if as_page:
        _collect(f"core/{model}.js", parts)
    whole = "\n".join(parts.values())
    return whole.replace(_DEFAULT, "const widget = ") if as_page else whole


@cache
def style() -> str:
    """Return the style sheet that all widgets share."""
    return _read("spf.css")


def _collect(path: str, parts: dict[str, str]) -> None:
    """Add a module to `parts`, after what it imports."""
    if path in parts:
        return
    text = _read(path)
    for found in _IMPORT.finditer(text):
        _collect(normpath(join(dirname(path), found["path"])), parts)
    parts[path] = _OURS.sub("", _EXPORT.sub("", _IMPORT.sub("", text)))


def _read(path: str) -> str:
    return files("speechframe.page").joinpath("static", path).read_text(encoding="utf-8")
