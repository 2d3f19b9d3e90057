"""Join the JavaScript modules of a widget to one script, without a bundler.

A notebook loads one script for each widget, and a saved page cannot import files. Therefore the imported
modules are placed before the script that imports them. Lines with ``import`` and the words ``export`` are
removed. This works because names are unique across modules, and each import is one line. Comments on lines of
their own, indentation, and spaces beside signs are removed as well.
"""

import re
from functools import cache
from importlib.resources import files
from posixpath import dirname, join, normpath

_IMPORT_LINE = re.compile(r'^import \{[^}]*\} from "(?P<path>\.{1,2}/[\w/]+\.js)";\n', re.MULTILINE)
_EXPORT_KEYWORD = re.compile(r"^export (?=(async )?(function|const|class|let)\b)", re.MULTILINE)
_EXPORT_DEFAULT = "export default "
# The indentation of a line, and a comment that starts there. No string of a script spans several lines.
_INDENTATION_AND_COMMENT = re.compile(r"^[ \t]*(?:/\*\*.*?\*/\n|//[^\n]*\n)?", re.DOTALL | re.MULTILINE)

# Only spaces outside strings are removed. So lines that may have a template, a regular expression or a string
# in single quotes stay as they are.
_STRING = re.compile(r'("(?:[^"\\]|\\.)*")')
_SPACES_BESIDE_SIGNS = re.compile(r" ?([=<>?:&|,;{}()\[\]*!]+) ?")


@cache
def build_script(name: str, *, as_page: bool = False, model: str = "page") -> str:
    """Return a widget's script, after all modules that it imports.

    Parameters
    ----------
    name
        Name of a script in the folder `static`, such as ``browser``.
    as_page
        Whether the script is for a page. Then it has no export, and shows the widget in the page.
    model
        Name of the module in `static/core` that makes the page's model (``page``, ``served``, ``offline``).
        The model holds the widget's state and handles its messages. Only used if `as_page` is true.

    Examples
    --------
    >>> "export default " in build_script("clip_player"), "import " in build_script("clip_player")
    (True, False)
    """
    parts: dict[str, str] = {}
    _collect(f"{name}.js", parts)
    if as_page:
        _collect(f"core/{model}.js", parts)
    whole = "\n".join(parts.values())
    if not as_page:
        return whole
    start = f'widget.render({{ model: await {model}Model(), el: document.getElementById("spf-host") }});\n'
    return whole.replace(_EXPORT_DEFAULT, "const widget = ") + start


@cache
def read_style() -> str:
    """Return the style sheet that all widgets share."""
    return _read("spf.css")


def _collect(path: str, parts: dict[str, str]) -> None:
    """Add a module to `parts`, after the modules that it imports."""
    if path in parts:
        return
    text = _read(path)
    for found in _IMPORT_LINE.finditer(text):
        _collect(normpath(join(dirname(path), found["path"])), parts)
    lines = _INDENTATION_AND_COMMENT.sub("", _EXPORT_KEYWORD.sub("", _IMPORT_LINE.sub("", text))).split("\n")
    parts[path] = "\n".join(line if line.startswith(_EXPORT_DEFAULT) else _shorten(line) for line in lines)


def _shorten(line: str) -> str:
    parts = _STRING.split(line)
    if any(sign in code for code in parts[::2] for sign in "`'/"):
        return line
    parts[::2] = [_SPACES_BESIDE_SIGNS.sub(r"\1", code) for code in parts[::2]]
    return "".join(parts)


def _read(path: str) -> str:
    return files("speechframe.page").joinpath("static", path).read_text(encoding="utf-8")
