"""Write a widget as a page: a saved page, which is one file, or a linked page, which needs its server."""

import base64
import html
import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from speechframe.errors import StoreError
from speechframe.page.arguments import check_path, check_text
from speechframe.page.assets import build_script, read_style

__all__ = ["LINKED_POLICY", "make_linked_page", "make_saved_page", "save_page"]

# A saved page contains its audio, so this policy forbids all requests, even if a text of a table has HTML.
_SAVED_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; media-src blob:; "
    "img-src data:"
)
_SAVED_TEMPLATE = """<!doctype html>
<html lang="{lang}">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>:root {{ color-scheme: light dark; }} body {{ margin: 0 auto; max-width: 1000px; padding: 12px; }}
{style}</style>
<body>
<main id="spf-host"><h1 class="spf spf-title" dir="auto">{title}</h1></main>
<noscript>{fallback}</noscript>
<script type="application/json" id="spf-state">{state}</script>
{clips}
<script type="module">
{script}
{start}
</script>
</body>
</html>
"""
LINKED_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; media-src blob:; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy for pages of :func:`make_linked_page`. Such a page may only connect to its
server."""

_LINKED_TEMPLATE = """<!doctype html>
<html lang="{lang}">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{style}">
<body class="spf-page">
<p id="spf-net" class="spf spf-net" role="alert" hidden></p>
<main id="spf-host"><h1 class="spf spf-title" dir="auto">{title}</h1></main>
<noscript>{fallback}</noscript>
<script type="application/json" id="spf-state">{state}</script>
<script type="module" src="{script}"></script>
</body>
</html>
"""
_EXAMPLE_PATH = "pages/clips.html"
"""Path that an error message gives as an example."""

_START_SCRIPT = 'widget.render({ model: pageModel(), el: document.getElementById("spf-host") });'


def make_saved_page(
    name: str,
    state: Mapping[str, Any],
    clips: Iterable[tuple[str, bytes, str]] = (),
    *,
    title: str,
    fallback: str = "This page needs JavaScript.",
    start: str = _START_SCRIPT,
    model: str = "page",
    lang: str = "en",
) -> str:
    """Return a widget as a saved page: one file that works without notebook, server and network.

    Parameters
    ----------
    name
        Name of the widget's script. See :func:`assets.build_script`.
    state
        State of the widget's model, as plain values and bytes. Bytes are converted to Base64.
    clips
        Id, audio (in a format for browsers) and content type of each clip.
    title
        Title of the page.
    fallback
        Text for browsers without JavaScript.
    start
        Last lines of the script. By default they show the widget with the state in the page.
    model
        Name of the module that makes the widget's model. See :func:`assets.build_script`.
    lang
        Language of the page's own texts.

    Examples
    --------
    >>> page = make_saved_page("clip_player", {"clips": [], "title": "</script>"}, title="Nothing")
    >>> page.count("</script>"), "http" in page.replace("http-equiv", "")
    (2, False)
    """
    clip_elements = "\n".join(
        f'<script type="text/plain" id="spf-clip-{html.escape(clip_id)}" data-mime="{html.escape(mime)}">'
        f"{base64.b64encode(data).decode()}</script>"
        for clip_id, data, mime in clips
    )
    return _SAVED_TEMPLATE.format(
        lang=lang,
        policy=_SAVED_POLICY,
        title=html.escape(check_text("title", title)),
        style=read_style(),
        fallback=html.escape(fallback),
        state=_escape_json(state),
        clips=clip_elements,
        script=build_script(name, as_page=True, model=model),
        start=start,
    )


def make_linked_page(
    state: Mapping[str, Any],
    *,
    title: str,
    script: str,
    style: str,
    fallback: str = "This page needs JavaScript.",
    lang: str = "en",
) -> str:
    """Return a widget as a page that loads its script and its style sheet from a server.

    Parameters
    ----------
    state
        State of the widget's model, as plain values.
    title
        Title of the page.
    script, style
        Addresses of script and style sheet, relative to the page.
    fallback
        Text for browsers without JavaScript.
    lang
        Language of the page's own texts.

    Examples
    --------
    >>> page = make_linked_page({"plan": "</script>"}, title="A test", script="page.js", style="page.css")
    >>> page.count("</script>"), "http" in page
    (2, False)
    """
    return _LINKED_TEMPLATE.format(
        lang=lang,
        title=html.escape(title),
        script=html.escape(script),
        style=html.escape(style),
        fallback=html.escape(fallback),
        state=_escape_json(state),
    )


def save_page(page: str, path: str | PathLike[str] | None) -> str | Path:
    """Return `page` if `path` is None. Otherwise write the page, make missing folders, and return the path.

    Raises
    ------
    ValueError
        `path` is neither None nor a path.
    StoreError
        The page cannot be written.
    """
    if path is None:
        return page
    target = check_path("path", path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"the page cannot be written to {target}: {error.strerror}; name a file such as {_EXAMPLE_PATH}"
        ) from error
    return target


def _escape_json(state: Mapping[str, Any]) -> str:
    """Return a state as JSON for a script element. Escapes keep its texts from ending the element."""
    text = json.dumps(state, ensure_ascii=False, default=_convert_to_text)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _convert_to_text(value: Any) -> Any:
    """Return a value that JSON cannot represent as text. Bytes become Base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
