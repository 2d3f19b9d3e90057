"""Compare voices on the same texts, side by side. The price is shown before credits are spent."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import traitlets as t

from speechframe import aio
from speechframe.audio.measure import measure_loudness_lufs
from speechframe.batch.live import Run
from speechframe.errors import SpeechframeError
from speechframe.page.arguments import check_text
from speechframe.page.clips import ClipShelf, Entry, make_shelf
from speechframe.processes.loop import run_sync, start_in_background
from speechframe.store.rows import Selection
from speechframe.store.schema import PENDING
from speechframe.tables.column import col
from speechframe.widgets.base import ClipWidget, make_clip_traits
from speechframe.writing.notebook import format_table
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pandas as pd

_REFRESH_S = 0.25
"""Time in seconds between two updates of the number of finished clips."""

_SILENCE_LUFS = -70.0
"""Softer clips count as silent, and do not set the loudness of the others."""

PLANNED, RUNNING, READY = "planned", "running", "ready"
"""Stages of a comparison."""

_RESERVED_ARGUMENTS = ("table", "text", "voice", "wait", "dry_run")
"""Arguments of :func:`speechframe.generate` that the comparison sets itself."""


class VoiceComparison(ClipWidget):
    """A page with each text spoken by each voice. Users switch voices while a text plays, and prefer clips.

    :func:`compare_voices` makes a comparison. It spends credits only if the button is pressed or
    :meth:`generate` is called.

    Attributes
    ----------
    stage
        ``"planned"`` before the clips are made, ``"running"`` meanwhile, and ``"ready"`` afterwards.
    run
        The run that makes the clips. None if existing runs are compared.
    preferred
        Voice that the user preferred for a text, by index of the text. The page plays the clips of a text
        equally loud, which can be switched off.
    """

    script = "comparison"

    stage = t.Unicode(PLANNED).tag(sync=True)
    cost = t.Unicode().tag(sync=True)
    price = t.Unicode().tag(sync=True)
    total = t.Int().tag(sync=True)
    done = t.Int().tag(sync=True)
    problem = t.Unicode().tag(sync=True)
    groups = t.List(t.Dict()).tag(sync=True)
    outlines = t.Dict().tag(sync=True)
    preferred = t.Dict().tag(sync=True)

    def __init__(self, run: Run | None, shelf: ClipShelf, making: dict[str, Any] | None = None) -> None:
        self.run = run
        self._making = making
        self._work: Future[None] | None = None
        super().__init__(shelf, **self._make_traits(run, shelf))

    def _make_traits(self, run: Run | None, shelf: ClipShelf) -> dict[str, Any]:
        """Return the first values of the traits: the price, or the clips if they exist already."""
        if self._making is None or run is None or run.estimate is None:
            return {"stage": READY, **_group_by_text(shelf)}
        estimate = run.estimate
        amount = format_count(estimate.credits, "credit")
        if not estimate.calls:
            # All clips exist already, so the user has nothing to confirm.
            return {
                "stage": READY,
                "cost": "the clips exist and cost nothing",
                **_group_by_text(shelf),
            }
        wrong = [f"{p['field']} {p['problem']}".lstrip() for p in run.problems]
        return {
            "stage": PLANNED,
            "cost": estimate.line() + (f" ({'; '.join(dict.fromkeys(wrong))})" if wrong else ""),
            "price": amount,
            "total": estimate.calls,
        }

    def on_generate(self, _: dict[str, Any]) -> None:
        """Start to make the clips. The page sends this message when the button is pressed."""
        self._start_run()

    def generate(self) -> "VoiceComparison":
        """Make the clips, wait for them, and return the comparison.

        Raises
        ------
        SpeechframeError
            The run failed, and there are no rows to show.
        """
        self._start_run()
        if self._work is not None:
            self._work.result()
        if self.problem and not self.groups:
            raise SpeechframeError(self.problem)
        return self

    def _start_run(self) -> None:
        if self.stage == PLANNED:
            self.stage = RUNNING
            self._work = start_in_background(self._make_clips())

    async def _make_clips(self) -> None:
        try:
            await self._run_to_end()
        except Exception as error:
            self.problem = str(error) or type(error).__name__
            if not isinstance(error, (SpeechframeError, OSError)):
                raise
        finally:
            # The stage is set after any error, so that the page never shows "running" for ever.
            self.stage = READY

    async def _run_to_end(self) -> None:
        """Run all calls with updates of the page, and show the clips."""
        try:
            self.run = await aio.generate(**(self._making or {}), wait=False)
            live = asyncio.ensure_future(self.run)
            while not live.done():
                await asyncio.wait([live], timeout=_REFRESH_S)
                if self.run.progress is not None:
                    self.done = self.run.progress.ended
            await live
        except SpeechframeError as error:
            self.problem = str(error)
        if self.run is not None:
            if not self.problem and self.run.stopped_because is not None:
                self.problem = self.run.describe_state()
            self.shelf = await asyncio.to_thread(make_shelf, self.run, limit=None)
            shown = await asyncio.to_thread(_group_by_text, self.shelf)
            self.outlines = shown["outlines"]
            self.groups = shown["groups"]

    @property
    def frame(self) -> "pd.DataFrame":
        """One row a clip, with text, voice, audio, words, credits, and whether the user prefers the clip."""
        import pandas as pd

        places = {text: k for k, text in enumerate(_list_texts(self.shelf))}
        rows = []
        for entry in self.shelf.entries:
            clip = entry.read_clip() if entry.problem is None else None
            voice = _get_voice(entry)
            rows.append(
                {
                    "text": entry.text,
                    "voice_id": voice,
                    "audio": clip.audio if clip is not None else None,
                    "word_durations": list(entry.words),
                    "credits": clip.credits if clip is not None else 0.0,
                    "status": entry.status,
                    "error": entry.problem,
                    "preferred": self.preferred.get(str(places[_get_text(entry)])) == voice,
                }
            )
        return pd.DataFrame(rows)

    def to_html(
        self, path: str | PathLike[str] | None = None, *, title: str = "Comparison of voices"
    ) -> str | Path:
        """Return the comparison as one page that contains its audio, or write the page and return `path`."""
        state = {name: getattr(self, name) for name in ("cost", "problem", "preferred")}
        state |= {"stage": READY, "price": "", "total": 0, "done": 0, **_group_by_text(self.shelf)}
        return self.save_as_page(path, title, **state)

    def to_text(self) -> str:
        """Return the stage and the number of clips as text."""
        return f"<VoiceComparison: {self.stage}, {format_count(len(self.shelf), 'clip')}>"

    def to_table(self) -> str:
        """Return the clips as a table. Its caption is the price, if the price is known."""
        rows = [[entry.text, _get_voice(entry), _describe_length(entry)] for entry in self.shelf.entries]
        return format_table(["text", "voice", "length"], rows, caption=self.cost or self.to_text())


def _describe_length(entry: Any) -> str:
    if entry.status in {None, PENDING}:
        return "not made yet"
    return entry.problem or f"{entry.audio_seconds:.2f} s"


def _get_text(entry: Any) -> str:
    return entry.text or str(entry.fields.get("text", ""))


def _get_voice(entry: Any) -> str:
    return entry.voice_id or str(entry.fields.get("voice") or entry.label)


def _list_texts(shelf: ClipShelf) -> list[str]:
    return list(dict.fromkeys(_get_text(entry) for entry in shelf.entries))


def _group_by_text(shelf: ClipShelf) -> dict[str, Any]:
    """Return the clips grouped by text, in the format of the page. Their gains make them equally loud."""
    shown = make_clip_traits(shelf)
    by_text: dict[str, list[tuple[dict[str, Any], float | None]]] = {text: [] for text in _list_texts(shelf)}
    for entry, clip in zip(shelf.entries, shown["clips"], strict=True):
        voice = _get_voice(entry)
        by_text[_get_text(entry)].append(({**clip, "voice": voice, "label": voice}, _measure_loudness(entry)))
    groups = []
    for text, clips in by_text.items():
        softest_lufs = min((lufs for _, lufs in clips if lufs is not None), default=0.0)
        for clip, lufs in clips:
            clip["gain"] = None if lufs is None else round(10 ** ((softest_lufs - lufs) / 20), 4)
        groups.append({"text": text, "clips": [clip for clip, _ in clips]})
    return {"groups": groups, "outlines": shown["outlines"]}


def _measure_loudness(entry: Entry) -> float | None:
    """Return the loudness of a clip in LUFS, or None if it cannot be read or is silent."""
    try:
        clip = entry.read_clip()
        loudness_lufs = measure_loudness_lufs(clip.samples, clip.sample_rate)
    except (SpeechframeError, OSError):
        return None
    return loudness_lufs if loudness_lufs > _SILENCE_LUFS else None


def compare_voices(voices: Any, texts: Sequence[str] | str | None = None, **options: Any) -> VoiceComparison:
    """Return a comparison of voices on the same texts. Its page spends credits only after a click.

    Parameters
    ----------
    voices
        Ids or names of voices. Or existing clips, as a run, some of its rows, or a list of runs. Existing
        clips need no `texts`.
    texts
        Texts that each voice speaks.
    **options
        Any other argument of :func:`speechframe.generate`, such as ``locale``, ``style``, ``run_dir`` or
        ``max_credits``. An existing run with the same texts and voices is used again and costs nothing.

    Raises
    ------
    ValueError
        There are fewer than two voices, or no text, or a voice or text is not a string. Or texts or options
        are given with runs, or an option that the comparison sets itself.
    SpeechframeError
        The service could not return the price.

    Examples
    --------
    >>> import speechframe as spf
    >>> comparison = spf.compare_voices(["nora", "miles"], ["Good morning."])  # doctest: +SKIP
    >>> comparison.generate().frame[["voice_id", "credits"]]  # doctest: +SKIP
    """
    # Any iterable is accepted, such as a column of a DataFrame.
    given = [voices] if isinstance(voices, (str, Run, Selection)) else _as_list("voices", voices)
    if given and all(isinstance(one, (Run, Selection)) for one in given):
        if texts is not None or options:
            raise ValueError(
                "runs are compared as they are and take neither texts nor options; leave these out, or pass "
                "names of voices"
            )
        return VoiceComparison(None, make_shelf(given, limit=None))
    lines = [texts] if isinstance(texts, str) else _as_list("texts", () if texts is None else texts)
    for what, value in [
        *(("each of voices", name) for name in given),
        *(("each of texts", line) for line in lines),
    ]:
        check_text(what, value)
    if taken := [name for name in _RESERVED_ARGUMENTS if name in options]:
        raise ValueError(f"a comparison sets {', '.join(taken)} itself; leave {', '.join(taken)} out")
    names, lines = list(dict.fromkeys(given)), list(dict.fromkeys(lines))
    if len(names) < 2:  # noqa: PLR2004 - a comparison needs two
        raise ValueError(f"a comparison needs two voices or more, not {names}")
    if not lines:
        raise ValueError(
            "a comparison needs one text or more, such as compare_voices(voices, ['Good morning.'])"
        )
    import pandas as pd

    frame = pd.DataFrame([{"text": line, "voice": name} for line in lines for name in names])
    fixed_arguments = {
        "table": frame,
        "text": "text",
        "voice": col("voice"),
        "on_invalid": "skip",
        "progress": False,
    }
    run_arguments = {**fixed_arguments, **options}
    run = run_sync(aio.generate(**run_arguments, dry_run=True))
    return VoiceComparison(run, make_shelf(run, limit=None), run_arguments)


def _as_list(name: str, given: Any) -> list[Any]:
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise ValueError(f"{name} must be a list of texts, not {given!r}")  # noqa: TRY004 - as for all arguments
    return list(given)
