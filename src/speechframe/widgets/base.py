"""What all widgets have in common: the script, the messages, and what is seen without a front end."""

import html
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from os import PathLike
from typing import Any, ClassVar

import anywidget

from speechframe.batch.live import Run, open_run
from speechframe.errors import SpeechframeError
from speechframe.page.assets import script, style
from speechframe.page.clips import Shelf

__all__ = ["ClipWidget", "PageWidget", "clips_of", "held_clips", "post", "run_of", "table"]

log = logging.getLogger(__name__)


@cache
def _worker() -> ThreadPoolExecutor:
    # One thread: what a person asked for first is answered first.
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="speechframe-widgets")


def post(work: Callable[[], None]) -> None:
    """Have something done soon, in a thread of the widgets.

    Handlers of messages run where the front end's messages are read, on some hosts the kernel's own thread
    and on others another one. They must neither wait there nor touch what is not theirs: they post.
    """

    def done() -> None:
        try:
            work()
        except Exception:
            log.exception("a widget could not answer its page")

    _worker().submit(done)


class PageWidget(anywidget.AnyWidget):
    """A widget with one of our scripts.

    Subclasses name their script and answer messages by methods ``on_<kind>(message)``.
    """

    script: ClassVar[str]
    _css = style()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "script" in cls.__dict__:
            cls._esm = script(cls.script)
        super().__init_subclass__(**kwargs)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.on_msg(self._heard)

    def _heard(self, _: Any, message: Any, __: Any) -> None:
        kind = message.get("kind") if isinstance(message, dict) else None
        act = getattr(self, f"on_{kind}", None) if isinstance(kind, str) and kind.isidentifier() else None
        if act is not None:
            post(lambda: act(message))

    def to_text(self) -> str:
        """Return the widget in a line of text."""
        return f"<{type(self).__name__}>"

    def to_table(self) -> str:
        """Return the widget as HTML that needs no script."""
        return f"<p>{html.escape(self.to_text())}</p>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        # What a saved notebook, a mail or a page without a kernel shows.
        return {**data, "text/plain": self.to_text(), "text/html": self.to_table()}, metadata

    def __repr__(self) -> str:
        return self.to_text()


class ClipWidget(PageWidget):
    """A widget that plays clips of a shelf, each sent when it is first asked for.

    Attributes
    ----------
    shelf
        The clips.
    loads
        Ids of the clips that were sent, in order.
    """

    def __init__(self, shelf: Shelf, **kwargs: Any) -> None:
        self.shelf = shelf
        self.loads: list[str] = []
        super().__init__(**kwargs)

    def on_load(self, message: dict[str, Any]) -> None:
        """Send the audio of a clip, or why there is none."""
        clip_id = str(message.get("clip"))
        try:
            data, mime = self.shelf.playable(clip_id)
        except KeyError:
            self.send({"kind": "error", "clip": clip_id, "message": f"there is no clip {clip_id!r} here"})
        except (SpeechframeError, OSError) as error:
            self.send({"kind": "error", "clip": clip_id, "message": str(error)})
        else:
            self.loads.append(clip_id)
            self.send({"kind": "audio", "clip": clip_id, "mime": mime}, buffers=[data])


def run_of(given: Any) -> Run:
    """Return a run as it is, or the one in a folder.

    Raises
    ------
    ValueError
        When it is neither.
    NotARun
        When the folder holds no run.
    """
    if isinstance(given, Run):
        return given
    if not isinstance(given, (str, PathLike)):
        raise ValueError(  # noqa: TRY004 - as for every other argument
            f"a {type(given).__name__} is no run; allowed: a run, or the path of its folder"
        )
    return open_run(given)


def clips_of(shelf: Shelf) -> dict[str, Any]:
    """Return what a page knows of a shelf's clips at once: the traits ``clips`` and ``outlines``."""
    return {
        "clips": [entry.to_page() for entry in shelf.entries],
        "outlines": {entry.clip_id: shelf.peaks(entry.clip_id) for entry in shelf.entries},
    }


def held_clips(shelf: Shelf) -> Iterator[tuple[str, bytes, str]]:
    """Yield the audio of a shelf for a page that is one file: id, bytes and content type."""
    for entry in shelf.entries:
        if entry.problem is None:
            yield (entry.clip_id, *shelf.playable(entry.clip_id))


def table(head: list[str], rows: list[list[Any]], *, caption: str = "") -> str:
    """Return a table as HTML; everything in it is text."""
    top = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    cells = ("".join(f'<td dir="auto">{html.escape(str(value))}</td>' for value in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    said = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{said}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
