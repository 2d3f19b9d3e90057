"""Play a list of clips, with waveforms, highlighted words and ratings."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import traitlets as t

from speechframe.batch.live import Run
from speechframe.client import Stream, SyncStream
from speechframe.errors import SpeechframeError
from speechframe.page.arguments import check_flag, check_whole_number
from speechframe.page.clips import ClipShelf, Entry, make_shelf
from speechframe.page.html import save_page
from speechframe.page.review import make_review_page
from speechframe.store.reviews import read_latest_reviews
from speechframe.widgets.base import ClipWidget, make_clip_traits, run_in_worker
from speechframe.widgets.dub_player import DubPlayer, list_dubs
from speechframe.widgets.stream_player import StreamPlayer
from speechframe.writing.notebook import format_table
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd


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
        Marks from 1 to 5 by clip id. Marks of a run's clips are stored in the run.
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
    trouble = t.Unicode().tag(sync=True)

    def __init__(self, shelf: ClipShelf, *, rates: bool = True) -> None:
        traits = {**make_clip_traits(shelf), "ratings": _read_ratings(shelf)}
        super().__init__(shelf, **traits, total=shelf.total, rates=rates)
        self.observe(lambda change: self._store_ratings(change["old"], change["new"]), "ratings")

    def _store_ratings(self, old: Mapping[str, int], new: Mapping[str, int]) -> None:
        """Write new ratings into the runs of their clips, in the thread of the widgets."""
        changed = [clip_id for clip_id, rating in new.items() if old.get(clip_id) != rating]

        def store() -> None:
            for entry in map(self.shelf.__getitem__, changed):
                try:
                    if entry.run is not None:
                        entry.run.review(entry.row_id, rating=new[entry.clip_id], sha256=_get_sha256(entry))
                    self.trouble = ""
                except (SpeechframeError, KeyError, OSError) as error:
                    self.trouble = f"the rating of {entry.label} was not saved: {error}"

        run_in_worker(store)

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

    def to_html(
        self,
        path: str | PathLike[str] | None = None,
        *,
        title: str = "Clips",
        locale: str = "en",
        texts: Mapping[str, str] | None = None,
    ) -> str | Path:
        """Return the player as one page that contains its audio, or write the page and return `path`.

        Ratings on the page stay in the browser, and are saved as a JSON file for
        :meth:`speechframe.Run.read_reviews`. `locale` and `texts` set the words of the page, as for
        :meth:`DatasetBrowser.to_html`.
        """
        page = make_review_page(
            self.shelf, title=title, rates=self.rates, locale=locale, texts=texts, fallback=self.to_text()
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


def _read_ratings(shelf: ClipShelf) -> dict[str, int]:
    """Return the stored ratings of the clips that still have the rated audio, by clip id."""
    runs = {id(entry.run): entry.run for entry in shelf.entries if entry.run is not None}
    reviews = {key: read_latest_reviews(run.folder).to_dict("index") for key, run in runs.items()}
    found = {}
    for entry in shelf.entries:
        review = reviews.get(id(entry.run), {}).get(entry.row_id)
        if review and isinstance(review["rating"], int) and review["rating_sha256"] == _get_sha256(entry):
            found[entry.clip_id] = review["rating"]
    return found


def _get_sha256(entry: Entry) -> Any:
    return entry.fields.get(entry.run.name_of("sha256"))


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
        contains the marks, and ``run.reviews`` those of a run's clips. Streams and videos cannot be rated.

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
