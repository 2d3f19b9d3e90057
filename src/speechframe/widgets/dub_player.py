"""Dubs: the video with its cues, its original in the same place, and what is said in it to be corrected."""

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
from speechframe.store.schema import FINISHED
from speechframe.widgets.base import PageWidget, run_of, table
from speechframe.wire.cues import parse

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Dub", "DubPlayer", "dubs_of", "review"]

_MEBI = 1 << 20
_LARGEST_BYTES = 200 * _MEBI
"""What a page is sent at once: more would fill the memory of browser and kernel."""


@dataclass(frozen=True)
class Dub:
    """One medium in one locale, as a page shows it.

    `path` and `original` are files of this machine, where there are such; cues are text, start and end in
    milliseconds; `problem` says why there is nothing to see; `utterances` are there where they can be
    corrected, and `version` grows when they are.
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

    def to_page(self) -> dict[str, Any]:
        """Return what goes to the page, as plain values."""
        return {
            "id": self.dub_id,
            "label": self.label,
            "locale": self.locale,
            "status": self.status,
            "video": self.path is not None and _media_type(self.path).startswith("video/"),
            "original": self.original is not None,
            "cues": [list(cue) for cue in self.cues],
            "problem": self.problem,
            "utterances": [dict(one) for one in self.utterances],
            "version": self.version,
        }


def _media_type(path: Path) -> str:
    return MEDIA_TYPES.get(path.suffix.casefold(), "application/octet-stream")


class DubPlayer(PageWidget):
    """Dubs under one another: each plays with its cues, and its original in its place at a click.

    Made by :func:`play` and :func:`review`.

    Parameters
    ----------
    dubs
        What is shown.
    correct
        Makes a dub again with other texts, and returns it as it is then; None where nothing is corrected.

    Attributes
    ----------
    loads
        What was sent to the page, in order: ``<dub>/<dub or original>/<whole or sound>/<version>``.
    """

    script = "dub_player"

    dubs = t.List(t.Dict()).tag(sync=True)
    said = t.Dict().tag(sync=True)

    def __init__(
        self,
        dubs: Sequence[Dub],
        correct: "Callable[[Dub, list[dict[str, Any]]], Dub] | None" = None,
    ) -> None:
        self._shown = {dub.dub_id: dub for dub in dubs}
        self._correct = correct
        self.loads: list[str] = []
        super().__init__(dubs=self._pages(), said={})

    def _pages(self) -> list[dict[str, Any]]:
        return [dub.to_page() for dub in self._shown.values()]

    def on_load(self, message: dict[str, Any]) -> None:
        """Send a file to the page, or its sound alone, or why there is none."""
        asked = str(message.get("clip"))
        try:
            data, mime = self._playable(asked)
        except (SpeechframeError, OSError) as error:
            self.send({"kind": "error", "clip": asked, "message": str(error)})
        else:
            self.loads.append(asked)
            self.send({"kind": "audio", "clip": asked, "mime": mime}, buffers=[data])

    def _playable(self, asked: str) -> tuple[bytes, str]:
        dub_id, side, how, _ = (*asked.rsplit("/", 3), "", "", "")[:4]
        dub = self._shown.get(dub_id)
        path = None if dub is None else dub.path if side == "dub" else dub.original
        if path is None:
            raise StoreError("there is no such medium here")
        if how == "sound":
            sound = media.read(path, max_seconds=MAX_DUB_SECONDS)
            return codec.encode(sound.samples, sound.sample_rate_hz, format=Format.FLAC), "audio/flac"
        if path.stat().st_size > _LARGEST_BYTES:
            raise StoreError(
                f"{path} is larger than {_LARGEST_BYTES // _MEBI} MB, which is too much for a notebook: open "
                "it with a player"
            )
        return path.read_bytes(), _media_type(path)

    def on_correct(self, message: dict[str, Any]) -> None:
        """Have a dub made again with the texts that somebody wrote."""
        dub, changes = self._shown.get(str(message.get("dub"))), message.get("changes")
        if dub is None or self._correct is None or not isinstance(changes, list) or not changes:
            return
        self.said = {"text": f"{dub.label}, {dub.locale}: speaking {len(changes)} anew …"}
        try:
            made = self._correct(dub, changes)
        except SpeechframeError as error:
            self.said = {"text": str(error), "bad": True}
            return
        self._shown[dub.dub_id] = replace(made, version=dub.version + 1)
        self.dubs = self._pages()
        self.said = {"text": f"{dub.label}, {dub.locale}: corrected"}

    def to_text(self) -> str:
        """Return how many dubs there are, and into what."""
        locales = sorted({dub.locale for dub in self._shown.values()})
        count = len(self._shown)
        return f"<DubPlayer: {count:,} dub{'' if count == 1 else 's'} ({', '.join(locales)})>"

    def to_table(self) -> str:
        """Return the dubs as a table: what can be seen without a kernel."""
        rows = [
            [
                dub.label,
                dub.locale,
                dub.status,
                dub.problem or (dub.path.name if dub.path else ""),
                len(dub.cues),
            ]
            for dub in self._shown.values()
        ]
        return table(["medium", "locale", "status", "file", "cues"], rows, caption=self.to_text())


def review(run: Run | str | PathLike[str], *, service: Any = None) -> DubPlayer:
    """Return a player of a run's dubs in which what is said can be corrected.

    What is corrected is spoken anew, and only that; the dub is then fetched into the run's folder. It costs
    nothing.

    Parameters
    ----------
    run
        A run of :func:`dub` with ``review=True``, or of a QA project; or its folder.
    service
        As for :func:`dub`; it must be the one that made the dubs.

    Raises
    ------
    InvalidRows, ServiceError, ConnectionFailed
        As :func:`utterances`.

    Examples
    --------
    >>> spf.review(run)  # doctest: +SKIP
    """
    run = run_of(run)
    said = _by_row(api.utterances(run, service=service))

    def correct(dub: Dub, changes: list[dict[str, Any]]) -> Dub:
        asked = [{"row_id": dub.dub_id, **change} for change in changes]
        now = _by_row(api.correct(run, asked, service=service))
        return next(one for one in dubs_of(run, now) if one.dub_id == dub.dub_id)

    return DubPlayer(dubs_of(run, said), correct)


def dubs_of(run: Run, said: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({})) -> list[Dub]:
    """Return the rows of a run of :func:`dub` as a page shows them; `said` can be corrected, by row id."""
    ours = ("row_id", "locale", "status", "dub_path", "vtt_path", "srt_path", "error_message")
    names = {name: run.name_of(name) for name in ours}
    given = run.manifest.table.arguments.get("media", {}).get("column")
    columns = [*names.values(), *([given] if given in run.columns else [])]
    dubs = []
    for row in run.to_arrow(columns=list(dict.fromkeys(columns))).to_pylist():
        row_id, locale, status, dub_path, vtt, srt, error = (row[column] for column in names.values())
        dub = Dub(str(row_id), str(row_id).removesuffix(f"/{locale}"), locale or "", status)
        if status in FINISHED:
            cues = _cues(run.path, vtt or srt)
            files = {"path": run.path / dub_path, "original": _file(row.get(given or ""))}
            dubs.append(replace(dub, **files, cues=cues, utterances=said.get(row_id, ())))
        else:
            dubs.append(replace(dub, problem=error or f"there is no dub: it is {status}"))
    return dubs


def _by_row(frame: "pd.DataFrame") -> dict[str, list[Any]]:
    said = frame.groupby("row_id")
    return {str(row_id): rows.drop(columns=["row_id", "locale"]).to_dict("records") for row_id, rows in said}


def _file(given: Any) -> Path | None:
    """Return the file that a row names as its medium, if it is still there."""
    path = Path(given).expanduser() if isinstance(given, str) else None
    return path if path is not None and path.is_file() else None


def _cues(folder: Path, name: str | None) -> list[tuple[str, int, int]]:
    found = parse((folder / name).read_text(encoding="utf-8")) if name else []
    return [(" ".join(cue.text.split()), cue.start_ms, cue.end_ms) for cue in found]
