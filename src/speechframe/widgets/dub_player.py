"""Show dubs (media files in another language) with cues and originals, and correct their utterances."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import traitlets as t

from speechframe import api
from speechframe.audio import codec, media
from speechframe.batch.live import Run
from speechframe.errors import SpeechframeError, StoreError
from speechframe.spec.chosen import MAX_DUB_SECONDS
from speechframe.spec.dubbing import MEDIA_TYPES
from speechframe.spec.speech import Format
from speechframe.store.schema import FINISHED_STATUSES
from speechframe.widgets.base import PageWidget, resolve_run
from speechframe.wire.subtitles import convert_to_cues, read_subtitles
from speechframe.writing.notebook import format_table
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd

_MEBIBYTE = 1 << 20
_MISSING_FILE = "dubs/none"
"""Path of a missing file, for a row without a path. Opening it gives the usual error."""

_MAX_FILE_BYTES = 200 * _MEBIBYTE
"""Largest file that is sent to a page. A larger file would fill the memory of browser and kernel."""


@dataclass(frozen=True)
class DubView:
    """The data of a dub of one media file in one locale, for the page.

    `path` and `original` are the local files of the dub and of its original, or None. A cue is a subtitle:
    its text, start and end in milliseconds. `problem` is the reason why the dub cannot be shown. `note` is a
    fault of the cues. `utterances` is empty if they cannot be corrected. Each correction adds 1 to `version`.
    """

    dub_id: str
    label: str
    locale: str
    status: str
    path: Path | None = None
    original: Path | None = None
    cues: Sequence[tuple[str, int, int]] = ()
    problem: str | None = None
    utterances: Sequence[Mapping[str, Any]] = ()
    version: int = 1
    note: str | None = None

    def to_page(self) -> dict[str, Any]:
        """Return the dub as plain values for the page."""
        return {
            "id": self.dub_id,
            "label": self.label,
            "locale": self.locale,
            "status": self.status,
            "video": self.path is not None and _get_media_type(self.path).startswith("video/"),
            "original": self.original is not None,
            "cues": [list(cue) for cue in self.cues],
            "problem": self.problem,
            "utterances": [dict(one) for one in self.utterances],
            "version": self.version,
            "note": self.note,
        }


def _get_media_type(path: Path) -> str:
    return MEDIA_TYPES.get(path.suffix.casefold(), "application/octet-stream")


class DubPlayer(PageWidget):
    """A list of dubs. Each plays with its cues, and a click switches between dub and original.

    :func:`play` and :func:`review` make a player.

    Parameters
    ----------
    dubs
        The dubs to show.
    correct
        Function that makes a dub again with corrected texts, and returns the new dub. None forbids
        corrections.

    Attributes
    ----------
    loads
        The files that were sent to the page, as ``<dub>/<dub or original>/<whole or sound>/<version>``.
    """

    script = "dub_player"

    dubs = t.List(t.Dict()).tag(sync=True)
    said = t.Dict().tag(sync=True)

    def __init__(
        self,
        dubs: Sequence[DubView],
        correct: "Callable[[DubView, list[dict[str, Any]]], DubView] | None" = None,
    ) -> None:
        self._shown = {dub.dub_id: dub for dub in dubs}
        self._correct = correct
        self.loads: list[str] = []
        super().__init__(dubs=self._make_dubs_trait(), said={})

    def _make_dubs_trait(self) -> list[dict[str, Any]]:
        return [dub.to_page() for dub in self._shown.values()]

    def on_load(self, message: dict[str, Any]) -> None:
        """Send a file or only its sound to the page, or an error."""
        name = str(message.get("clip"))
        try:
            data, mime = self._read_playable(name)
        except (SpeechframeError, OSError) as error:
            self.send({"kind": "error", "clip": name, "message": str(error)})
        else:
            self.loads.append(name)
            self.send({"kind": "audio", "clip": name, "mime": mime}, buffers=[data])

    def _read_playable(self, name: str) -> tuple[bytes, str]:
        """Return a file for the page, and its content type. `name` is as in :attr:`loads`."""
        dub_id, side, part, _ = (*name.rsplit("/", 3), "", "", "")[:4]
        dub = self._shown.get(dub_id)
        path = None if dub is None else dub.path if side == "dub" else dub.original
        if path is None:
            raise StoreError("this player does not have that file; run the cell again")
        if part == "sound":
            sound = media.read_audio(path, max_seconds=MAX_DUB_SECONDS)
            return codec.encode(sound.samples, sound.sample_rate_hz, format=Format.FLAC), "audio/flac"
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise StoreError(
                f"{path} is larger than {_MAX_FILE_BYTES // _MEBIBYTE} MB, which is too large for a "
                "notebook; open the file with a media player"
            )
        return path.read_bytes(), _get_media_type(path)

    def on_correct(self, message: dict[str, Any]) -> None:
        """Make a dub again with the corrected texts of the message."""
        dub, changes = self._shown.get(str(message.get("dub"))), message.get("changes")
        if dub is None or self._correct is None or not isinstance(changes, list) or not changes:
            return
        self.said = {
            "text": f"{dub.label}, {dub.locale}: making {format_count(len(changes), 'utterance')} again …"
        }
        try:
            made = self._correct(dub, changes)
        except SpeechframeError as error:
            self.said = {"text": str(error), "bad": True}
            return
        self._shown[dub.dub_id] = replace(made, version=dub.version + 1)
        self.dubs = self._make_dubs_trait()
        self.said = {"text": f"{dub.label}, {dub.locale}: corrected"}

    def to_text(self) -> str:
        """Return the number of dubs and their locales as text."""
        locales = sorted({dub.locale for dub in self._shown.values()})
        count = len(self._shown)
        return f"<DubPlayer: {count:,} dub{'' if count == 1 else 's'} ({', '.join(locales)})>"

    def to_table(self) -> str:
        """Return the dubs as a table, which is visible without a kernel."""
        rows = [
            [
                dub.label,
                dub.locale,
                dub.status,
                dub.problem or (dub.path.name if dub.path else ""),
                dub.note or len(dub.cues),
            ]
            for dub in self._shown.values()
        ]
        return format_table(["medium", "locale", "status", "file", "cues"], rows, caption=self.to_text())


def review(run: Run | str | PathLike[str], *, service: Any = None) -> DubPlayer:
    """Return a player of a run's dubs that can correct the utterances.

    Only corrected utterances are spoken again. The new dub replaces the old one in the run's folder.
    Corrections cost nothing.

    Parameters
    ----------
    run
        A run of :func:`dub` with ``review=True`` or of a QA project, or its folder.
    service
        The service that made the dubs, as in :func:`dub`.

    Raises
    ------
    InvalidRows, ServiceError, ConnectionFailed
        As :func:`utterances`.

    Examples
    --------
    >>> spf.review(run)  # doctest: +SKIP
    """
    run = resolve_run(run)
    utterances = _group_by_row(api.utterances(run, service=service))

    def correct(dub: DubView, changes: list[dict[str, Any]]) -> DubView:
        corrections = [{"row_id": dub.dub_id, **change} for change in changes]
        corrected = _group_by_row(api.correct(run, corrections, service=service))
        return next(one for one in list_dubs(run, corrected) if one.dub_id == dub.dub_id)

    return DubPlayer(list_dubs(run, utterances), correct)


def list_dubs(
    run: Run, by_row: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({})
) -> list[DubView]:
    """Return the rows of a run of :func:`dub` for a page. `by_row` has utterances to correct, by row id."""
    ours = ("row_id", "locale", "status", "dub_path", "vtt_path", "srt_path", "error_message")
    names = {name: run.name_of(name) for name in ours}
    given = run.manifest.table.arguments.get("media", {}).get("column")
    columns = [*names.values(), *([given] if given in run.columns else [])]
    dubs = []
    for row in run.to_arrow(columns=list(dict.fromkeys(columns))).to_pylist():
        row_id, locale, status, dub_path, vtt, srt, error = (row[column] for column in names.values())
        medium = row.get(given or "")
        # The name of the file is the label. Media that are not files have only the id of their row.
        label = Path(medium).name if isinstance(medium, str) else str(row_id).removesuffix(f"/{locale}")
        dub = DubView(str(row_id), label, locale or "", status)
        if status not in FINISHED_STATUSES:
            dubs.append(replace(dub, problem=error or f"there is no dub, because the status is {status}"))
            continue
        try:
            path = run.folder.find_path(dub_path or _MISSING_FILE)
        except StoreError as refused:
            dubs.append(replace(dub, problem=str(refused)))
            continue
        cues, note = _read_cues(run, vtt or srt)
        original, utterances = _find_original(medium), by_row.get(row_id, ())
        dubs.append(replace(dub, path=path, original=original, cues=cues, note=note, utterances=utterances))
    return dubs


def _group_by_row(frame: "pd.DataFrame") -> dict[str, list[Any]]:
    groups = frame.groupby("row_id")
    return {
        str(row_id): rows.drop(columns=["row_id", "locale"]).to_dict("records") for row_id, rows in groups
    }


def _find_original(given: Any) -> Path | None:
    """Return the path of a row's original media file, or None if the file is missing or not a media file."""
    path = Path(given).expanduser() if isinstance(given, str) else None
    return path if path is not None and path.suffix.casefold() in MEDIA_TYPES and path.is_file() else None


def _read_cues(run: Run, name: str | None) -> tuple[list[tuple[str, int, int]], str | None]:
    """Return the cues of a run's subtitle file, and a note on faults of the file or None."""
    try:
        found = read_subtitles(run.folder.find_path(name).read_text(encoding="utf-8-sig")) if name else None
    except (OSError, ValueError, StoreError) as error:
        return [], f"the subtitles in {name} cannot be read: {error}"
    if found is None:
        return [], None
    cues = [(" ".join(cue.text.split()), cue.start_ms, cue.end_ms) for cue in convert_to_cues(found)]
    return cues, "; ".join(found.warnings) or None
