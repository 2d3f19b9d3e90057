"""Write a widget as a page: a saved page, which is one file, or a linked page, which needs its server."""

import base64
import html
import json
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from speechframe.errors import StoreError
from speechframe.page.arguments import check_path, check_text
from speechframe.page.assets import build_script, read_style

# A saved page contains its audio, so this policy forbids all requests, even if a text of a table has HTML.
_SAVED_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; media-src blob:; "
    "img-src data:"
)
LINKED_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; media-src blob:; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy for pages of :func:`make_linked_page`. Such a page may only connect to its
server."""
SCRIPT_NAME, STYLE_NAME = "page.js", "page.css"
"""Addresses of script and style sheet, relative to such a page."""

_HEAD = """<!doctype html>
<html lang="{lang}" dir="{direction}">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
{parts}
<body class="spf-page">
<main id="spf-host"><h1 class="spf spf-title" dir="auto">{title}</h1></main>
<noscript>{fallback}</noscript>
"""
_TAIL = """<script type="application/json" id="spf-state">{state}</script>
{script}
</body>
</html>
"""
_EXAMPLE_PATH = "pages/clips.html"
"""Path that an error message gives as an example."""
_NO_SCRIPT = "This page needs JavaScript."


def stream_saved_page(
    name: str,
    state: Mapping[str, Any],
    clips: Iterable[tuple[str, bytes, str]] = (),
    *,
    title: str,
    fallback: str = _NO_SCRIPT,
    model: str = "page",
    lang: str = "en",
    direction: str = "ltr",
) -> Iterator[str]:
    """Yield the parts of a saved page: one file that works without notebook, server and network.

    Parameters
    ----------
    name
        Name of the widget's script. See :func:`assets.build_script`.
    state
        State of the widget's model, as plain values and bytes. Bytes are converted to Base64. The state is
        written after the clips, so reading the clips may complete it.
    clips
        Id, audio (in a format for browsers) and content type of each clip.
    title
        Title of the page.
    fallback
        Text for browsers without JavaScript.
    model
        Name of the module that makes the widget's model. See :func:`assets.build_script`.
    lang, direction
        Language of the page's own texts, and its direction (``ltr`` or ``rtl``).

    Examples
    --------
    >>> state = {"clips": [], "title": "</script>"}
    >>> page = "".join(stream_saved_page("clip_player", state, title="Nothing"))
    >>> page.count("</script>"), "http" in page.replace("http-equiv", "")
    (2, False)
    """
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_SAVED_POLICY}">'
    parts = f"{policy}\n<style>{read_style()}</style>"
    yield _make_head(check_text("title", title), parts, fallback, lang, direction)
    for clip_id, data, mime in clips:
        identity = f'id="spf-clip-{html.escape(clip_id)}" data-mime="{html.escape(mime)}"'
        yield f'<script type="text/plain" {identity}>{base64.b64encode(data).decode()}</script>\n'
    script = build_script(name, as_page=True, model=model)
    yield _TAIL.format(state=_escape_json(state), script=f'<script type="module">\n{script}</script>')


def make_linked_page(
    state: Mapping[str, Any],
    *,
    title: str,
    lang: str = "en",
    direction: str = "ltr",
) -> str:
    """Return a widget as a page that loads its script and its style sheet from a server.

    Parameters
    ----------
    state
        State of the widget's model, as plain values.
    title
        Title of the page.
    lang, direction
        Language of the page's own texts, and its direction (``ltr`` or ``rtl``).

    Examples
    --------
    >>> page = make_linked_page({"plan": "</script>"}, title="A test")
    >>> page.count("</script>"), "http" in page
    (2, False)
    """
    parts = f'<link rel="icon" href="data:,">\n<link rel="stylesheet" href="{STYLE_NAME}">'
    source = f'<script type="module" src="{SCRIPT_NAME}"></script>'
    return _make_head(title, parts, _NO_SCRIPT, lang, direction) + _TAIL.format(
        state=_escape_json(state), script=source
    )


def _make_head(title: str, parts: str, fallback: str, lang: str, direction: str) -> str:
    """Return the beginning of a page. `parts` are elements of the head as HTML."""
    return _HEAD.format(
        title=html.escape(title),
        parts=parts,
        fallback=html.escape(fallback),
        lang=html.escape(lang),
        direction=direction,
    )


def save_page(page: str | Iterable[str], path: str | PathLike[str] | None) -> str | Path:
    """Return `page` if `path` is None. Otherwise write the page, make missing folders, and return the path.

    The page is a text, or the parts of a text. An old file is replaced only by a complete page.

    Raises
    ------
    ValueError
        `path` is neither None nor a path.
    StoreError
        The page cannot be written.
    """
    if path is None:
        return "".join(page)
    target = check_path("path", path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_parts([page] if isinstance(page, str) else page, target)
    except OSError as error:
        raise StoreError(
            f"the page cannot be written to {target}: {error.strerror}; name a file such as {_EXAMPLE_PATH}"
        ) from error
    return target


def _write_parts(parts: Iterable[str], target: Path) -> None:
    if target.exists() and not target.is_file():  # such as /dev/stdout, which must not be replaced
        target.write_text("".join(parts), encoding="utf-8")
        return
    unfinished = target.with_name(f".{target.name}.tmp")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.writelines(parts)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _escape_json(state: Mapping[str, Any]) -> str:
    """Return a state as JSON for a script element. Escapes keep its texts from ending the element."""
    text = json.dumps(state, ensure_ascii=False, default=_convert_to_text)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _convert_to_text(value: Any) -> Any:
    """Return a value that JSON cannot represent as text. Bytes become Base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
