"""Play a list of clips, with waveforms, highlighted words and ratings."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import traitlets as t

from speechframe.batch.live import Run
from speechframe.client import Stream, SyncStream
from speechframe.page.arguments import check_flag, check_whole_number
from speechframe.page.clips import ClipShelf, make_shelf
from speechframe.page.html import make_saved_page, save_page
from speechframe.widgets.base import ClipWidget, format_table, load_playable_clips, make_clip_traits
from speechframe.widgets.dub_player import DubPlayer, list_dubs
from speechframe.widgets.stream_player import StreamPlayer
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ClipPlayer", "play"]


class ClipPlayer(ClipWidget):
    """A player of clips. A click or the space bar plays a clip, and the current word is highlighted.

    :func:`play` makes a player.

    Parameters
    ----------
    shelf
        The clips.
    rates
        Whether to show the marks 1 to 5 under each clip, so that users can rate it.

    Attributes
    ----------
    ratings
        Marks that users gave so far, from 1 to 5, by clip id.
    plays
        Number of times that each clip was started, by clip id.
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

    def __init__(self, shelf: ClipShelf, *, rates: bool = True) -> None:
        super().__init__(shelf, **make_clip_traits(shelf), total=shelf.total, rates=rates)

    @property
    def results(self) -> "pd.DataFrame":
        """Ratings and numbers of plays so far, one row a clip."""
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
        """Return the player as one page that contains its audio, or write the page and return `path`."""
        state = {
            **make_clip_traits(self.shelf),
            "total": self.shelf.total,
            "rates": self.rates,
            "ratings": dict(self.ratings),
            "plays": {},
        }
        page = make_saved_page(
            self.script, state, load_playable_clips(self.shelf), title=title, fallback=self.to_text()
        )
        return save_page(page, path)

    def to_text(self) -> str:
        """Return the number of clips and their total length as text."""
        seconds = sum(entry.audio_seconds for entry in self.shelf.entries)
        return (
            f"<ClipPlayer: {len(self.shelf):,} of {format_count(self.shelf.total, 'clip')}, {seconds:,.1f} s>"
        )

    def to_table(self) -> str:
        """Return the clips as a table, which is visible without a kernel."""
        rows = [
            [entry.label, entry.voice_id or "", f"{entry.audio_seconds:.2f} s", entry.problem or entry.text]
            for entry in self.shelf.entries
        ]
        return format_table(["clip", "voice", "length", "text"], rows, caption=self.to_text())


@overload
def play(source: Stream | SyncStream) -> StreamPlayer: ...


@overload
def play(source: Any, *, label: Any = None, limit: int | None = 200, rates: bool = True) -> ClipPlayer: ...


def play(
    source: Any, *, label: Any = None, limit: int | None = 200, rates: bool = True
) -> ClipPlayer | StreamPlayer | DubPlayer:
    """Return a player for clips, for a stream, or for dubbed videos.

    Parameters
    ----------
    source
        Clips, as a run, a selection of rows, a list of these, a clip, a list of clips, or a DataFrame with a
        column ``audio``. Or a stream of :func:`speechframe.stream`, which plays while it arrives. Or a run of
        :func:`dub`, whose videos are shown with their cues and originals.
    label
        Column with the label of each clip, as ``col("name")``. None uses the row's id.
    limit
        Largest number of clips. None shows all.
    rates
        Whether to show the marks 1 to 5 under each clip, so that users can rate it. ``player.results``
        contains the given marks. Streams and videos cannot be rated.

    Raises
    ------
    StoreError
        The source does not contain anything to play.
    ValueError
        `limit` is not a whole number from 1 on, or `rates` is neither True nor False.

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
        return DubPlayer(list_dubs(source))
    if limit is not None:
        limit = check_whole_number("limit", limit)
    return ClipPlayer(make_shelf(source, label=label, limit=limit), rates=check_flag("rates", rates))
