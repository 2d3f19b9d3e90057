"""Provide the base classes of widgets, with their scripts, their messages and their view as plain HTML."""

import html
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import anywidget

from speechframe.batch.live import Run, open_run
from speechframe.errors import SpeechframeError
from speechframe.page.assets import build_script, read_style
from speechframe.page.clips import ClipShelf
from speechframe.page.html import save_page, stream_saved_page

log = logging.getLogger(__name__)


@cache
def _get_worker() -> ThreadPoolExecutor:
    """Return the executor of all widgets. Its only thread keeps the order of the user's actions."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="speechframe-widgets")


def run_in_worker(work: Callable[[], None]) -> None:
    """Run `work` soon in the thread of the widgets, and log its errors.

    A message handler runs in the thread that reads messages, which may be the kernel's main thread. A handler
    must not block this thread. So it passes its work to this function.
    """

    def run_and_log() -> None:
        try:
            work()
        except Exception:
            log.exception("a widget could not handle a message of its page")

    _get_worker().submit(run_and_log)


class PageWidget(anywidget.AnyWidget):
    """A widget with one of the package's scripts.

    A subclass sets ``script``, the name of a script in `page/static`. Its methods ``on_<kind>(message)``
    handle messages of the page.
    """

    script: ClassVar[str]
    _css = read_style()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "script" in cls.__dict__:
            cls._esm = build_script(cls.script)
        super().__init_subclass__(**kwargs)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.on_msg(self._dispatch)

    def _dispatch(self, _: Any, message: Any, __: Any) -> None:
        kind = message.get("kind") if isinstance(message, dict) else None
        handler = getattr(self, f"on_{kind}", None) if isinstance(kind, str) and kind.isidentifier() else None
        if kind == "load":  # a sample may take long to make, so tell the page that the kernel is alive
            self.send({"kind": "loading", "clip": message.get("clip")})
        if handler is not None:
            run_in_worker(lambda: handler(message))

    def to_text(self) -> str:
        """Return the widget as one line of text."""
        return f"<{type(self).__name__}>"

    def to_table(self) -> str:
        """Return the widget as HTML that works without a script."""
        return f"<p>{html.escape(self.to_text())}</p>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        # Saved notebooks, mails and pages without a kernel show these texts.
        return {**data, "text/plain": self.to_text(), "text/html": self.to_table()}, metadata

    def __repr__(self) -> str:
        return self.to_text()


class ClipWidget(PageWidget):
    """A widget that plays clips. The audio of a clip is sent when the page requests it.

    Attributes
    ----------
    shelf
        The clips of the page, with their data and their audio.
    loads
        Ids of the clips that were sent, in order.
    """

    def __init__(self, shelf: ClipShelf, **kwargs: Any) -> None:
        self.shelf = shelf
        self.loads: list[str] = []
        super().__init__(**kwargs)

    def on_load(self, message: dict[str, Any]) -> None:
        """Send the audio of a clip, or an error."""
        clip_id = str(message.get("clip"))
        try:
            data, mime = self.shelf.read_playable(clip_id)
        except KeyError:
            self.send({"kind": "error", "clip": clip_id, "message": f"there is no clip {clip_id!r} here"})
        except (SpeechframeError, OSError) as error:
            self.send({"kind": "error", "clip": clip_id, "message": str(error)})
        else:
            self.loads.append(clip_id)
            self.send({"kind": "audio", "clip": clip_id, "mime": mime}, buffers=[data])

    def save_as_page(self, path: str | PathLike[str] | None, title: str, **state: Any) -> str | Path:
        """Return the widget as a page that contains its audio, or write the page and return `path`."""
        playable = [entry for entry in self.shelf.entries if entry.problem is None]
        clips = ((entry.clip_id, *entry.read_clip().playable()) for entry in playable)
        page = stream_saved_page(self.script, state, clips, title=title, fallback=self.to_text())
        return save_page(page, path)


def resolve_run(given: Any) -> Run:
    """Return the run of an argument, which is a run or the folder of a run.

    Raises
    ------
    ValueError
        `given` is neither a run nor a path.
    NotARun
        The folder does not contain a run.
    """
    if isinstance(given, Run):
        return given
    if not isinstance(given, (str, PathLike)):
        raise ValueError(  # noqa: TRY004 - all argument errors are ValueErrors
            f"the type {type(given).__name__} is not a run; pass a run, or the path of its folder"
        )
    return open_run(given)


def make_clip_traits(shelf: ClipShelf) -> dict[str, Any]:
    """Return values of the traits ``clips`` (data without audio) and ``outlines`` (of waveforms, by id)."""
    return {
        "clips": [entry.to_page() for entry in shelf.entries],
        "outlines": {entry.clip_id: shelf.compute_peaks(entry.clip_id) for entry in shelf.entries},
    }
