"""Browse a run's rows page by page. Users sort, filter, search and play rows, and keep or reject them."""

import logging
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets as t

from speechframe.batch.live import Run
from speechframe.errors import SpeechframeError
from speechframe.page.arguments import check_flag, check_text, check_whole_number
from speechframe.page.clips import ClipShelf, Entry, make_shelf, read_entry
from speechframe.page.html import save_page
from speechframe.page.review import make_review_page
from speechframe.store.arranged import SORT_KEYS, VERDICT_FILTERS, Arrangement, RowReader
from speechframe.store.reviews import KEEP, REJECT
from speechframe.store.rows import ROW_ID_COLUMN, Selection
from speechframe.store.schema import BOOKKEEPING_COLUMNS, STATUSES
from speechframe.widgets.base import ClipWidget, resolve_run
from speechframe.writing.notebook import format_table
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

_DEFAULT_PAGE_ROWS = 50
"""Default number of rows that are listed at once."""

_MAX_PAGE_ROWS = 1_000
_MAX_OPENED_ROWS = 24
"""Number of last opened rows whose audio the page can still load."""


class DatasetBrowser(ClipWidget):
    """A run's rows, page by page, with a player and controls for reviews.

    :func:`browse` makes a browser. A review is on disk at once, and ``run.reviews`` contains it.

    Parameters
    ----------
    run
        The run.
    page_rows
        Number of rows that are listed at once.
    reviewer
        Name of the reviewer. None uses the user of this process.

    Attributes
    ----------
    run
        The run.
    rows
        The rows of the page that is shown.
    found
        Number of rows that match the filters and the search.
    loads
        Ids of the clips whose audio was sent to the page, in order.
    """

    script = "browser"

    rows = t.List(t.Dict()).tag(sync=True)
    total = t.Int().tag(sync=True)
    found = t.Int().tag(sync=True)
    judged = t.Int().tag(sync=True)
    columns = t.List(t.Unicode()).tag(sync=True)
    folder = t.Unicode().tag(sync=True)
    page_rows = t.Int().tag(sync=True)
    wanted = t.Dict().tag(sync=True)
    opened = t.Dict().tag(sync=True)
    outline = t.Bytes().tag(sync=True)
    audible = t.Bool().tag(sync=True)
    trouble = t.Unicode().tag(sync=True)

    def __init__(self, run: Run, *, page_rows: int = _DEFAULT_PAGE_ROWS, reviewer: str | None = None) -> None:
        self.run = run
        self.reviewer = reviewer
        self._reader = RowReader(run)
        self._arranged = Arrangement()
        self._opened: dict[str, Entry] = {}
        self._opened_as: tuple[Any, ...] = ()
        super().__init__(
            ClipShelf(),
            total=self._reader.total,
            page_rows=page_rows,
            audible=self._reader.audible,
            columns=self._reader.searchable,
            folder=str(run.path),
        )
        self.show()

    def show(
        self,
        page: int = 0,
        *,
        search: str = "",
        column: str = "",
        status: str = "",
        verdict: str = "",
        by: str = "row",
        descending: bool = False,
    ) -> None:
        """Show a page of the rows, as the widget's own controls do.

        Parameters
        ----------
        page
            Number of the page, from 0. A number that is too high shows the last page.
        search
            Show only rows whose text or id contains these characters. Case is ignored.
        column
            Search in this column instead. In a column of numbers, `search` may be a comparison such as
            ``">2.5"``.
        status
            Show only rows with this status. ``""`` shows all.
        verdict
            Show only rows with ``keep``, ``reject``, or ``none`` for no verdict. ``""`` shows all.
        by, descending
            Column to sort by: ``row`` (the run's own order), ``text``, ``voice``, ``locale``, ``status``,
            ``seconds`` or ``verdict``.

        Raises
        ------
        ValueError
            An argument does not have one of these values.
        """
        if not isinstance(search, str):
            raise ValueError(f"search must be a text, not {search!r}")  # noqa: TRY004 - as for all arguments
        descending = check_flag("descending", descending)
        self._show(page, Arrangement(search.strip(), status, verdict, by, descending, column))

    def _show(self, page: int, arranged: Arrangement, *, keep: bool = False, token: str = "") -> None:
        """Show a page of the rows. `keep` turns a page of the same rows, and `token` marks the answer."""
        page = check_whole_number("page", page, low=0)
        choices = {
            "column": ("", *self._reader.searchable),
            "by": SORT_KEYS,
            "status": ("", *STATUSES),
            "verdict": VERDICT_FILTERS,
        }
        for name, allowed in choices.items():
            if (given := getattr(arranged, name)) not in allowed:
                raise ValueError(
                    f"{name}={given!r}; allowed: {', '.join(value or repr('') for value in allowed)}"
                )
        self.run.refresh()
        self._reader.forget_reviews()
        self._arranged = arranged
        places = self._reader.find_places(self._arranged, keep=keep)
        last = max(0, -(-len(places) // self.page_rows) - 1)
        page = min(max(page, 0), last)
        page_places = places[page * self.page_rows : (page + 1) * self.page_rows]
        with self.hold_sync():
            self.rows = self._reader.read_page(page_places)
            self.total, self.found, self.judged = self._reader.total, len(places), self._count_judged()
            self.wanted = {**self._arranged.to_page(), "page": page, "token": token}
            self.trouble = ""
        self._reload_open_row()

    @property
    def view(self) -> Selection:
        """The rows that match search and filters, in the run's order. Functions accept them like a run."""
        return Selection(self.run, tuple(sorted(self._reader.find_places(self._arranged))))

    @property
    def frame(self) -> "pd.DataFrame":
        """The rows that match search and filters, in the order of the browser."""
        view = self.view
        index_by_position = {position: k for k, position in enumerate(view.positions)}
        return view.to_pandas().iloc[
            [index_by_position[position] for position in self._reader.find_places(self._arranged)]
        ]

    # -- messages --------------------------------------------------------------------

    def on_show(self, message: dict[str, Any]) -> None:
        """Show another page, or change the order, the search or the filters."""
        token = str(message.get("token"))
        search, column, status, verdict = (
            str(message.get(name) or "").strip() for name in ("search", "column", "status", "verdict")
        )
        by, descending = str(message.get("by") or "row"), bool(message.get("descending"))
        arranged = Arrangement(search, status, verdict, by, descending, column)
        try:
            self._show(message.get("page") or 0, arranged, keep=bool(message.get("turn")), token=token)
        except (SpeechframeError, ValueError) as error:
            with self.hold_sync():
                self.trouble = str(error)
                self.wanted = {**self.wanted, "token": token}

    def on_open(self, message: dict[str, Any]) -> None:
        """Open a row of the page with its words and its waveform."""
        row = self._find_listed_row(message)
        if row is None:
            return
        try:
            self._open_row(row)
        except (SpeechframeError, OSError) as error:
            self.trouble = str(error)

    def _open_row(self, row: dict[str, Any]) -> None:
        """Show the words, the waveform and the other columns of a listed row."""
        self.run.refresh()
        (current_row,) = self._reader.read_page([row["place"]])
        if current_row != row:
            # The audio was made again after the list was read. Reviews must refer to the played audio.
            self.rows = [current_row if one is row else one for one in self.rows]
        self._opened_as = _get_audio_state(current_row)
        entry = read_entry(self.run, row["place"], self._reader.text_columns)
        # Rows that were opened before are kept, because the page may still load their audio.
        self._opened = {**{k: e for k, e in self._opened.items() if k != entry.clip_id}, entry.clip_id: entry}
        self._opened = dict(list(self._opened.items())[-_MAX_OPENED_ROWS:])
        self.shelf = ClipShelf(self._opened.values())
        with self.hold_sync():
            self.outline = b"" if entry.problem else self.shelf.compute_peaks(entry.clip_id)
            self.opened = {
                **entry.to_page(),
                "place": row["place"],
                "sha256": current_row["sha256"],
                "fields": self._format_other_columns(entry),
            }

    def _format_other_columns(self, entry: Entry) -> dict[str, str]:
        """Return the columns of a row that its panel does not show elsewhere, as texts."""
        name_of = self.run.name_of
        shown = {
            *map(name_of, (*BOOKKEEPING_COLUMNS, ROW_ID_COLUMN, "word_durations", "locale", "text")),
            *self._reader.text_columns[:1],
        }
        shown = shown - {*map(name_of, ("take", "credits"))} | {name_of("audio_seconds")}
        return {
            name: str(value)
            for name, value in entry.fields.items()
            if name not in shown and value not in (None, "")
        }

    def on_review(self, message: dict[str, Any]) -> None:
        """Store reviews, and reply. The page keeps the reviews until the reply confirms them."""
        reply = {"kind": "reviewed", "decision": message.get("decision")}
        try:
            for said in message["reviews"]:
                given: dict[str, Any] = {
                    name: str(said[name]) for name in ("verdict", "comment", "corrected_text") if name in said
                }
                row_id, sha256 = str(said["row"]), said.get("sha256")
                self.run.review(row_id, **given, sha256=sha256, reviewer=self.reviewer)
        except (SpeechframeError, KeyError, OSError) as error:
            log.warning("the review of row %s was not saved: %s", row_id, error)
            self.trouble = f"row {row_id} was not saved: {error}"
            self.send({**reply, "problem": str(error)})
            return
        self._reader.forget_reviews()
        with self.hold_sync():
            self.trouble = ""
            self.judged = self._count_judged()
            self.rows = self._reader.read_page([row["place"] for row in self.rows])
        self.send(reply)
        self._reload_open_row()

    def _count_judged(self) -> int:
        """Return the number of rows with a verdict."""
        return int(self._reader.reviews["verdict"].notna().sum())

    def _reload_open_row(self) -> None:
        """Reload the open row if its audio was made again, because a verdict refers to the played audio."""
        row = self._find_listed_row(self.opened)
        if row is not None and _get_audio_state(row) != self._opened_as:
            self.on_open(row)

    def _find_listed_row(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return the listed row whose position in the run (``place``) is in a message, or None."""
        return next((row for row in self.rows if row["place"] == message.get("place")), None)

    # -- saved pages and plain HTML ----------------------------------------------------

    def to_html(
        self,
        path: str | PathLike[str] | None = None,
        *,
        editable: bool = False,
        limit: int | None = None,
        title: str = "Rows",
        locale: str = "en",
        texts: Mapping[str, str] | None = None,
    ) -> str | Path:
        """Return the matching rows as one page that contains their audio, or write the page to `path`.

        The page works without a notebook and a network. Reviews stay in the browser, and the reviewer saves
        them as a JSON file. :meth:`speechframe.Run.read_reviews` reads these files.

        Parameters
        ----------
        path
            File to write. None returns the page.
        editable
            Whether users can give verdicts, comments and corrected texts.
        limit
            Largest number of rows. None takes all matching rows.
        title
            Title of the page.
        locale
            Locale of the page's own words. English and German are built in.
        texts
            Words of the page by name, for another language or to replace some of them.

        Raises
        ------
        StoreError
            The audio is larger than 500 MB, or the page cannot be written.
        ValueError
            An argument is invalid, or a word of the page is missing.

        Examples
        --------
        >>> import speechframe as spf
        >>> spf.browse("runs/demo").to_html("review.html", editable=True)  # doctest: +SKIP
        """
        places = self._reader.find_places(self._arranged)
        if limit is not None:
            places = places[: check_whole_number("limit", limit)]
        shelf = make_shelf(Selection(self.run, tuple(sorted(places))), limit=None, needs_audio=False)
        shelf.total = self.found
        page = make_review_page(
            shelf,
            title=title,
            order=np.argsort(np.argsort(places)).tolist(),
            verdicts=check_flag("editable", editable),
            locale=locale,
            texts=texts,
            fallback=self.to_text(),
        )
        return save_page(page, path)

    def to_text(self) -> str:
        """Return the numbers of rows and of verdicts as text."""
        verdicts = self._reader.reviews["verdict"]
        kept, rejected = ((verdicts == verdict).sum() for verdict in (KEEP, REJECT))
        rows = format_count(self.total, "row")
        return f"<DatasetBrowser: {self.found:,} of {rows}, {kept:,} kept, {rejected:,} rejected>"

    def to_table(self) -> str:
        """Return the current page as a table."""
        head = ["row", "text", "voice", "length", "status", "verdict", "comment"]
        rows = [
            [
                row["row"],
                row["text"],
                row["voice"] or "",
                f"{row['seconds']:.2f} s",
                row["status"] + (f": {row['why']}" if row["why"] else ""),
                row["verdict"] or "",
                row["comment"] or "",
            ]
            for row in self.rows
        ]
        return format_table(head, rows, caption=self.to_text())


def _get_audio_state(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the fields of a row that change if its audio is made again."""
    return row["status"], row["sha256"]


def browse(
    run: Run | str | PathLike[str], *, page_rows: int = _DEFAULT_PAGE_ROWS, reviewer: str | None = None
) -> DatasetBrowser:
    """Return a browser that sorts, searches and plays a run's rows, and stores reviews of them.

    Only the listed rows are read, and audio only when it is played. The key ``k`` keeps a row and ``r``
    rejects it. Both go on to the next row and play it, which a checkbox switches off. ``u`` undoes the last
    step, ``c`` adds a comment, and ``t`` corrects the text. Space plays, and arrows move between rows. With
    Shift, arrows and clicks choose several rows for one verdict.

    A review is in the run's folder at once (``run.reviews``), with the reviewer and the SHA-256 hash of the
    audio. ``browser.to_html("review.html", editable=True)`` writes a page for people without Jupyter.
    ``resume(run, redo="rejected")`` makes another take (new audio of the same text) of rejected rows.
    A corrected text is only stored with the review. To speak it, put the text into the table, and call
    ``resume(run, table=frame)``.

    Parameters
    ----------
    run
        A run, or its folder.
    page_rows
        Number of rows that are listed at once, up to 1,000.
    reviewer
        Name of the reviewer. None uses the user of this process.

    Raises
    ------
    ValueError
        `run` is neither a run nor a path, `page_rows` is out of range, or `reviewer` is not a text.
    NotARun
        The folder does not contain a run.

    Examples
    --------
    >>> import speechframe as spf
    >>> browser = spf.browse("runs/demo", reviewer="ann")  # doctest: +SKIP
    >>> browser.view.to_pandas()  # doctest: +SKIP
    """
    if reviewer is not None:
        check_text("reviewer", reviewer)
    page_rows = check_whole_number("page_rows", page_rows, high=_MAX_PAGE_ROWS)
    return DatasetBrowser(resolve_run(run), page_rows=page_rows, reviewer=reviewer)
