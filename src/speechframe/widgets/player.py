"""Clips under one another: waveform, words that light up, ratings."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import traitlets as t

from speechframe._words import counted
from speechframe.batch.live import Run
from speechframe.client import Stream, SyncStream
from speechframe.page.arguments import flag, whole
from speechframe.page.clips import Shelf, shelf_of
from speechframe.page.html import one_file, saved
from speechframe.widgets.base import ClipWidget, clips_of, held_clips, table
from speechframe.widgets.dub_player import DubPlayer, dubs_of
from speechframe.widgets.stream_player import StreamPlayer

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ClipPlayer", "play"]


class ClipPlayer(ClipWidget):
    """Clips that play on click or by the space bar, one at a time, with the word that is heard lit up.

    Made by :func:`play`.

    Parameters
    ----------
    shelf
        The clips.
    rates
        With five marks under each clip.

    Attributes
    ----------
    ratings
        Clip id to mark, 1 to 5, as given so far.
    plays
        Clip id to how often it was begun.
    loads
        Clips whose audio was sent to the page, in order.
    """

    script = "clip_player"

    clips = t.List(t.Dict()).tag(sync=True)
    outlines = t.Dict().tag(sync=True)
    total = t.Int().tag(sync=True)
    rates = t.Bool(default_value=True).tag(sync=True)
    ratings = t.Dict().tag(sync=True)
    plays = t.Dict().tag(sync=True)

    def __init__(self, shelf: Shelf, *, rates: bool = True) -> None:
        super().__init__(shelf, **clips_of(shelf), total=shelf.total, rates=rates)

    @property
    def results(self) -> "pd.DataFrame":
        """What was rated and played so far: a row a clip."""
        import pandas as pd

        rows = [
            {
                "row_id": entry.row_id,
                "label": entry.label,
                "voice_id": entry.voice_id,
                "rating": self.ratings.get(entry.clip_id),
                "plays": int(self.plays.get(entry.clip_id, 0)),
            }
            for entry in self.shelf.entries
        ]
        frame = pd.DataFrame(rows, columns=["row_id", "label", "voice_id", "rating", "plays"])
        return frame.astype({"rating": "Int64"})

    def to_html(self, path: str | PathLike[str] | None = None, *, title: str = "Clips") -> str | Path:
        """Return the player as one page with its audio in it, or write it to `path` and return that."""
        state = {
            **clips_of(self.shelf),
            "total": self.shelf.total,
            "rates": self.rates,
            "ratings": dict(self.ratings),
            "plays": {},
        }
        page = one_file(self.script, state, held_clips(self.shelf), title=title, fallback=self.to_text())
        return saved(page, path)

    def to_text(self) -> str:
        """Return how many clips there are, and how long they are together."""
        seconds = sum(entry.audio_seconds for entry in self.shelf.entries)
        return f"<ClipPlayer: {len(self.shelf):,} of {counted(self.shelf.total, 'clip')}, {seconds:,.1f} s>"

    def to_table(self) -> str:
        """Return the clips as a table: what can be seen without a kernel."""
        rows = [
            [entry.label, entry.voice_id or "", f"{entry.audio_seconds:.2f} s", entry.problem or entry.text]
            for entry in self.shelf.entries
        ]
        return table(["clip", "voice", "length", "text"], rows, caption=self.to_text())


@overload
def play(source: Stream | SyncStream) -> StreamPlayer: ...


@overload
def play(source: Any, *, label: Any = None, limit: int | None = 200, rates: bool = True) -> ClipPlayer: ...


def play(
    source: Any, *, label: Any = None, limit: int | None = 200, rates: bool = True
) -> ClipPlayer | StreamPlayer | DubPlayer:
    """Return a player for the clips of a run, of some of its rows, or of several runs; a stream; or dubs.

    Parameters
    ----------
    source
        A run, a selection of rows, a list of these, a clip, a list of clips, or a DataFrame with a column
        ``audio``. Or what :func:`speechframe.stream` returns: it is heard while it arrives. Or a run of
        :func:`dub`: its videos, with their cues and originals.
    label
        ``col("name")`` of what each clip is called; the row's id by default.
    limit
        Clips at most; None for all.
    rates
        With five marks under each clip: ``player.results`` holds what was chosen. A stream has none.

    Raises
    ------
    StoreError
        When there is nothing in it that could be played.
    ValueError
        For a `limit` that is no whole number from 1 on, or `rates` that are neither True nor False.

    Examples
    --------
    >>> import speechframe as spf
    >>> player = spf.play(spf.open_run("runs/demo").sample(20))  # doctest: +SKIP
    >>> player.results  # doctest: +SKIP
    >>> spf.play(spf.stream("Good morning.", voice="ivy"))  # doctest: +SKIP
    """
    if isinstance(source, Stream | SyncStream):
        return StreamPlayer(source)
    if isinstance(source, Run) and source.operation == "dub":
        return DubPlayer(dubs_of(source))
    if limit is not None:
        limit = whole("limit", limit)
    return ClipPlayer(shelf_of(source, label=label, limit=limit), rates=flag("rates", rates))
