"""What verbs have in common whose answers are audio: sending, audio behind an address, and records."""

import asyncio
import json
import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from speechframe.batch.backend import Answer, Attempt, Record, Request
from speechframe.client import Call, Raw, Spoken
from speechframe.errors import BadAnswer, SpeechframeError
from speechframe.spec.check import FieldProblem
from speechframe.spec.speech import Format, Model, Voice
from speechframe.store.schema import AUDIO_TYPE, WORDS_TYPE, columns
from speechframe.verbs.catalogue import VoiceBook
from speechframe.verbs.judging import SpokenRecord
from speechframe.verbs.service import ServiceBackend

_FORMATS = {format: (format.value, f".{format.value.lower()}") for format in Format}
_KEPT_HEADERS = "x-"


class SpokenBackend(ServiceBackend):
    """A backend of calls whose answers are audio, in a voice of the catalogue of :attr:`model`.

    Attributes
    ----------
    model
        Whose voices are used.
    wire_names
        Argument to the field that it fills.
    tells_words
        Whether answers say when each word is heard.
    book
        The voices, once the backend is open.
    """

    columns = columns(
        audio=AUDIO_TYPE,
        text=pa.string(),
        word_durations=WORDS_TYPE,
        format=pa.string(),
        sample_rate=pa.int32(),
        channels=pa.int32(),
        audio_seconds=pa.float64(),
    )
    model: Model = Model.GEN2
    wire_names: Mapping[str, str]
    tells_words: bool = True
    book: VoiceBook

    async def look_up(self) -> Mapping[str, Any]:
        """Ask for the voices of the model; and of the others, so that a voice of theirs is recognised."""
        others = [model for model in Model if model is not self.model]
        voices, *listed = await asyncio.gather(
            self.client.voices(self.model.value), *(self._other_voices(model) for model in others)
        )
        self.book = VoiceBook(voices, self.model, dict(zip(others, listed, strict=True)))
        return {"voices": self.book.hash}

    async def _other_voices(self, model: Model) -> list[Voice]:
        found: list[Voice] = []
        with suppress(SpeechframeError):  # a service need not have the model
            found = await self.client.voices(model.value)
        return found

    @abstractmethod
    def most_audio_bytes(self, call: Call[Any]) -> int:
        """Return how large the audio of a call can be that is behind an address."""

    async def send(self, request: Request, attempt: Attempt) -> Answer:
        """Make one attempt, the download of audio behind an address included.

        The address is noted before the download, and an attempt that finds one noted downloads only: the call
        is paid and not made again.
        """
        call, began = self.call(request), time.monotonic()
        if attempt.noted is not None:
            try:
                raw = _raw_of(attempt.noted)
                return await self._with_audio(call, raw, attempt, began)
            except BadAnswer:
                # The address is gone. Where the service bills a repeat once, it is asked for another.
                if attempt.idempotency_key is None:
                    raise
        raw = await self.exchange(call, attempt)
        if call.audio_url(raw) is None:
            return Answer((call, raw, None), raw.trace_id, raw.latency_ms)
        await attempt.note(_noted(raw))
        return await self._with_audio(call, raw, attempt, began)

    async def _with_audio(self, call: Call[Any], raw: Raw, attempt: Attempt, began: float) -> Answer:
        """Fetch the audio behind an answer, in what is left of the attempt's time."""
        spent_s = time.monotonic() - began
        audio = await self.client.fetch(
            call.audio_url(raw) or "",
            deadline_s=None if attempt.deadline_s is None else max(0.0, attempt.deadline_s - spent_s),
            max_bytes=self.max_answer_bytes or self.most_audio_bytes(call),
            admit=attempt.admit,
        )
        return Answer((call, raw, audio), raw.trace_id)

    def records(self, request: Request, answer: Answer) -> list[Record | SpeechframeError]:
        """Return the record of an answer; what is odd beside good audio is among its warnings."""
        call, raw, audio = answer.data
        spoken: Spoken = call.decode(raw) if audio is None else call.decode(raw, audio=audio)
        answer.balance = spoken.remaining_characters
        format, suffix = _FORMATS[spoken.format]
        values = {
            "text": self.text_of(call),
            "word_durations": spoken.words if self.tells_words else None,
            "format": format,
            "sample_rate": spoken.sample_rate_hz,
            "channels": spoken.channels,
            "audio_seconds": spoken.audio_seconds,
        }
        if spoken.transcription is not None:
            values["transcription"] = spoken.transcription
        return [
            SpokenRecord(
                values,
                spoken.audio,
                f"{request.key}{suffix}",
                list(spoken.warnings),
                answer=spoken,
                asked=call.request,
            )
        ]

    @abstractmethod
    def text_of(self, call: Call[Any]) -> str | None:
        """Return what is said in the audio, as far as that is known before."""

    def by_argument(self, problem: FieldProblem) -> FieldProblem:
        """Return a problem of a field as one of the argument that fills it."""
        field, dot, rest = problem.field.partition(".")
        argument = next((name for name, wire in self.wire_names.items() if wire == field), field)
        return FieldProblem(f"{argument}{dot}{rest}", problem.problem, problem.value, problem.allowed)

    def differences(self, before: bytes, after: bytes) -> tuple[str, ...]:
        """Return the names of the arguments in which two bodies differ."""
        arguments = {wire: name for name, wire in self.wire_names.items()}
        return tuple(arguments.get(name, name) for name in super().differences(before, after))


def _noted(raw: Raw) -> bytes:
    """Return what an answer without its audio says, to be written down before the audio is downloaded."""
    headers = {name: value for name, value in raw.headers.items() if name.lower().startswith(_KEPT_HEADERS)}
    kept = [raw.body.decode("utf-8", "replace"), headers, raw.trace_id, raw.latency_ms, raw.region]
    return json.dumps(kept).encode()


def _raw_of(noted: bytes) -> Raw:
    body, headers, trace_id, latency_ms, region = json.loads(noted)
    return Raw(body.encode(), headers, trace_id, latency_ms, region)
