"""The verb `transcribe`, which recognises the words of clips on this machine, and counts errors.

No service is called. Clips in files are not copied, and neither is the audio of an earlier run. The body of a
call names the file, or the earlier run and its call with the audio.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self, Unpack

import pyarrow as pa

from speechframe.backends.clips import ClipReader, with_run_clips
from speechframe.backends.files import resolve_path
from speechframe.batch.backend import Answer, Attempt, Backend, LaneSpec, Opened, Record, Request
from speechframe.batch.live import Run
from speechframe.batch.run_options import RunOptions
from speechframe.errors import AudioError, SettingsError, SpeechframeError
from speechframe.recognition.pool import RecogniserPool, count_cores
from speechframe.scale.run import make_run
from speechframe.spec.check import FieldProblem, shorten_value
from speechframe.spec.locales import get_language
from speechframe.store.reader import StoredRun
from speechframe.store.schema import AUDIO_COLUMN, FINISHED_STATUSES, WORDS_TYPE, columns
from speechframe.tables.column import Column

_RULES = 2
"""Goes up when equal clips and references give other columns. A run must not mix two ways of counting."""

_ALWAYS_S = 366 * 86_400.0  # a repeat of a call is always free


class TranscribeBackend(Backend):
    """Makes calls to recogniser processes of this machine."""

    operation = "transcribe"
    columns = columns(
        transcript=pa.string(),
        transcript_words=WORDS_TYPE,
        language=pa.string(),
        reference=pa.string(),
        wer=pa.float64(),
        cer=pa.float64(),
        word_errors=pa.int32(),
        reference_words=pa.int32(),
        character_errors=pa.int32(),
        reference_characters=pa.int32(),
        audio_seconds=pa.float64(),
    )
    arguments = (AUDIO_COLUMN, "reference", "locale", "recogniser")
    data_arguments = frozenset({AUDIO_COLUMN})
    carried = frozenset({AUDIO_COLUMN})
    unit = "clip"

    def __init__(self, recogniser: str | None = None) -> None:
        self._clips = ClipReader()
        self._pool = RecogniserPool(recogniser)
        self._runs: dict[str, StoredRun] = {}  # earlier runs by path

    @classmethod
    def from_constants(cls, settings: Any, constants: Mapping[str, Any]) -> Self:
        """Return the backend of a run with this `recogniser`. It needs no settings of a service."""
        del settings
        return cls(constants.get("recogniser"))

    async def open(self) -> Opened:
        """Start the first recogniser process. The run's service is the recogniser with its version."""
        name = await self._pool.open()
        self.service = f"local/{name}"
        lane = LaneSpec("this machine", f"{self.service} {id(self._pool)}", published=count_cores())
        return Opened((lane,), repeats_free_s=_ALWAYS_S, takes=False, is_local=True)

    async def close(self) -> None:
        """End the recogniser processes."""
        await self._pool.close()

    def source(self, table: Any) -> Any:
        """Return the table, with references to the clips if it is a run, or a list of audio files."""
        return self._clips.open_source(with_run_clips(table))

    def check(self, values: Mapping[str, Any]) -> Request | list[FieldProblem]:
        """Return the request of one row, or all problems of the row. Reads a clip that is not of a run."""
        problems = []
        audio, reference, locale = (values.get(name) for name in self.arguments[:3])
        clip, known = dict[str, Any](), dict[str, Any]()
        if isinstance(audio, Mapping) and "request_key" in audio:
            clip, identity = {"run": audio["run"], "key": audio["request_key"]}, audio["request_key"]
            locale, known = locale or audio["locale"], {"voice_id": audio["voice_id"]}
            if audio["status"] not in FINISHED_STATUSES:
                fault = f"is missing, because the row of the run is {audio['status']}"
                problems.append(
                    FieldProblem(AUDIO_COLUMN, fault, allowed='on_invalid="skip" leaves such rows out')
                )
        else:
            try:
                found = self._clips.read(audio, self.folder)
                clip, identity = {"path": str(found.path), "sha256": found.sha256}, found.sha256
            except AudioError as error:
                problems.append(FieldProblem(AUDIO_COLUMN, str(error), shorten_value(audio), "an audio file"))
        try:
            language = None if locale is None else get_language(locale)
        except (ValueError, TypeError, AttributeError):
            problems.append(
                FieldProblem("locale", "is not a locale", shorten_value(locale), "such as en-US or en")
            )
        if reference is not None and not isinstance(reference, str):
            problems.append(FieldProblem("reference", "is not text", shorten_value(reference), "text"))
        if problems:
            return problems
        facts = {"language": language, "reference": reference}
        content = json.dumps([_RULES, identity, facts]).encode()
        known |= {} if locale is None else {"locale": locale}
        return Request(content, json.dumps(facts | clip).encode(), price=0, facts=known, varies=False)

    async def send(self, request: Request, attempt: Attempt) -> Answer:
        """Recognise one clip. The attempt has no time limit but the user's ``timeout_s``."""
        body = json.loads(request.body)
        audio, facts = await asyncio.to_thread(self._read, body)
        facts |= {name: body[name] for name in ("language", "reference")}
        return Answer(await self._pool.ask(facts, audio, attempt.extend))

    def _read(self, body: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
        """Return the bytes of a clip, and the format of the audio of a run."""
        if (path := body.get("run")) is not None:
            run = self._runs.get(path) or self._runs.setdefault(path, StoredRun.open(path))
            try:
                clip = run.clip_of_call(body["key"])
            except KeyError as error:
                raise AudioError(f"the run {path} has lost its audio: {error.args[0]}") from None
            kind = {"format": clip.format, "sample_rate": clip.sample_rate, "channels": clip.channels}
            return clip.audio, kind
        file = resolve_path(self.folder, body["path"])
        try:
            data = file.read_bytes()
        except OSError as error:
            raise AudioError(f"{file} cannot be read: {error.strerror or error}") from None
        if hashlib.sha256(data).hexdigest() != body["sha256"]:
            raise AudioError(f"{file} has changed since it was checked; pass it again")
        return data, {"format": None}

    def records(self, request: Request, answer: Answer) -> list[Record | SpeechframeError]:
        """Return the record of a reply. A clip without speech has an empty transcript and a warning."""
        del request
        found = answer.data
        return [Record(found, warnings=[] if found["transcript"] else ["no speech was found in the clip"])]


async def transcribe(
    table: Any,
    *,
    audio: str | Column | Any = "audio",
    reference: str | Any = None,
    locale: str | Column | Any = None,
    recogniser: str | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Return a :class:`Run` with the recognised words of every clip of `table`.

    ``transcript`` and ``transcript_words`` have the text, and each word with its times. Columns of an earlier
    run keep their names and values.

    Speech is recognised on this machine, in a process for each core. A process of Whisper base needs 350 MB.
    ``max_concurrency`` sets a smaller number of processes. Nothing is sent to a service, and no credits are
    charged. The extra ``asr`` is needed. Calling again with the same clips recognises only missing ones.

    Parameters
    ----------
    table
        An earlier run with audio, its folder, or a list of such runs. Or any table of :func:`generate`, audio
        files (a list of paths or clips, or one path), or a folder of audio files. Subfolders are read, too,
        but not hidden folders and folders of runs. Row ids are then the paths relative to the folder.
    audio
        The column of clips, or a list of clips, as in :func:`change_voice`. In an earlier run, ``"audio"`` is
        the audio that the run made. This audio is not copied.
    reference
        The column with the spoken text, or a list of texts. The columns ``wer`` and ``cer`` then contain the
        word and character error rates, and ``word_errors``, ``reference_words``, ``character_errors`` and
        ``reference_characters`` the counts. Sum the counts for the rate of a corpus. Before counting, pause
        markers, punctuation and group marks of numbers are removed, and upper case becomes lower case.
        Numbers in digits and in words stay different. In scripts without spaces, such as Chinese and
        Japanese, each character is a word.
    locale
        Language of the clips, or ``col("x")`` for a column. By default the rows of an earlier run have their
        own locale, and the recogniser finds the language of all other clips.
    recogniser
        Name of the recogniser, such as ``whisper``. None (default) uses the first one that works.
    **options
        See :class:`RunOptions`: ``run_dir``, ``id``, ``dry_run``, ``wait`` and more.

    Raises
    ------
    InvalidRows
        If rows cannot be used. ``problems`` lists all problems, and nothing was recognised.
    RunMismatch, RunLocked, StoreError
        If the folder cannot be used for this run.
    SettingsError
        If no recogniser works, or an option is not allowed.

    Examples
    --------
    >>> import speechframe as spf
    >>> run = spf.generate(["Good morning."], voice="en-US-nora")  # doctest: +SKIP
    >>> frame = spf.transcribe(run, reference="text").to_pandas()  # doctest: +SKIP
    >>> frame["word_errors"].sum() / frame["reference_words"].sum()  # doctest: +SKIP
    """
    if not isinstance(recogniser, str | None):
        raise SettingsError(f"recogniser={recogniser!r} is not a name; allowed: a text such as 'whisper'")
    arguments = {
        "audio": audio,
        "reference": Column(reference) if isinstance(reference, str) else reference,
        "locale": locale,
        "recogniser": recogniser,
    }
    return await make_run(TranscribeBackend(recogniser), table, arguments, options)
