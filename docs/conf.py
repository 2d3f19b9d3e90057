"""Settings of Sphinx for the HTML documentation. `make docs` builds the pages into docs/build/html."""

import inspect
from pathlib import Path
from typing import Any, get_type_hints

from sphinx.util.inspect import stringify_signature

import speechframe

DOCS = Path(__file__).parent

project = "speechframe"
author = "The speechframe authors"
copyright = "The speechframe authors"
version = release = speechframe.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
]
exclude_patterns = ["build"]
templates_path = ["_templates"]
default_role = "py:obj"  # a name in single backticks links to its page if it has one
python_maximum_signature_line_length = 88

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autosummary_generate_overwrite = True
numpydoc_show_class_members = False  # the template of classes lists them

myst_heading_anchors = 3

html_theme = "pydata_sphinx_theme"
html_title = "speechframe"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def list_pages() -> list[str]:
    """Return the names of the pages in the order of pages.txt, or of the alphabet without this file."""
    order = DOCS / "pages.txt"
    if order.exists():
        return [Path(line).stem for line in order.read_text(encoding="utf-8").split()]
    return sorted(path.stem for path in DOCS.glob("*.md"))


def insert_pages(_app: Any, docname: str, content: list[str]) -> None:
    """Insert the names of the pages into the table of contents of guides.rst."""
    if docname == "guides":
        content[0] = content[0].replace("{pages}", "\n   ".join(list_pages()))


def _is_literal(parameter: inspect.Parameter) -> bool:
    """Return True if the default can be shown as code, or if there is no default."""
    return parameter.default is parameter.empty or not repr(parameter.default).startswith("<")


def simplify_signature(  # Sphinx gives these arguments by position
    _app: Any, _what: str, _name: str, obj: Any, _options: Any, signature: str | None, _return: str | None
) -> tuple[str, None] | None:
    """Return a class signature without validators. A default that is not a literal becomes ``...``."""
    if not (inspect.isclass(obj) and signature and ("Annotated[" in signature or "= <" in signature)):
        return None
    types = get_type_hints(obj)
    parameters = [
        parameter.replace(
            annotation=types.get(name, parameter.annotation),
            default=parameter.default if _is_literal(parameter) else ...,
        )
        for name, parameter in inspect.signature(obj).parameters.items()
    ]
    text = stringify_signature(inspect.Signature(parameters), unqualified_typehints=True)
    return text.replace("Ellipsis", "..."), None


def setup(app: Any) -> None:
    """Connect the hooks of this file."""
    app.connect("autodoc-process-signature", simplify_signature)
    app.connect("source-read", insert_pages)
