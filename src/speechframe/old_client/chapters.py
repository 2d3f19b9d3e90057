"""What differs between the endpoints that are billed: limits of a call, and what its answer holds."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from speechframe.audio.codec import AudioInfo
from speechframe.errors import BadAnswer
from speechframe.old_client import changer
from speechframe.old_client.audio import inspected
from speechframe.old_client.calls import Call, CameOn, Spoken
from speechframe.old_client.download import Downloader
from speechframe.old_client.limits import MIB
from speechframe.old_client.reach import Reach
from speechframe.old_client.translate import Translated, characters_of, largest_answer, translated
from speechframe.old_client.transport import Reply
from speechframe.old_client.whole import whole_audio
from speechframe.spec.billing import billed_characters
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.chosen import TRACE_HEADER
from speechframe.spec.speech import GenerateRequest, StreamRequest
from speechframe.spec.translate import TranslateRequest
from speechframe.wire.bodies import Generated, decode_generate
from speechframe.wire.changer import Converted, decode_convert
from speechframe.wire.errors import trace_id_of, value_of, warnings_of
from speechframe.wire.translate import decode_translate

__all__ = ["ANYTHING", "JSON", "Answering", "Arrived", "Chapter", "make_chapters"]

JSON = "application/json"
ANYTHING = "*/*"

_LARGE_BYTES = 4 * MIB

T = TypeVar("T")


class Arrived(NamedTuple):
    """A good answer: what came, from where, and `time.perf_counter` when its attempt began."""

    reply: Reply
    region: str
    started_s: float


@dataclass(frozen=True)
class Chapter:
    """How the calls of one endpoint are sent and their answers read.

    Parameters
    ----------
    timeout_s
        The limit of one exchange with a call.
    max_bytes
        The largest answer to a call.
    answer
        Reads a good answer to a call.
    accept
        What a good answer is: the header ``Accept``.
    """

    timeout_s: Callable[[Call[Any]], float]
    max_bytes: Callable[[Call[Any]], int]
    answer: Callable[[Call[Any], Arrived], Awaitable[Any]]
    accept: str = JSON


def make_chapters(reach: Reach, downloader: Downloader) -> Mapping[str, Chapter]:
    """Return the chapter of every endpoint that a :class:`Call` can be for, by the endpoint's name.

    Parameters
    ----------
    reach
        The client.
    downloader
        What fetches audio that came as a URL.
    """
    timeouts, bounds, answers = reach.timeouts, reach.bounds, _Answers(reach, downloader)
    return {
        "generate": Chapter(
            timeout_s=lambda call: timeouts.attempt_s(len(call.request.text)),
            max_bytes=lambda call: bounds.answer_bytes_for(call.request),
            answer=answers.spoken,
        ),
        "stream": Chapter(
            timeout_s=lambda call: timeouts.attempt_s(len(call.request.text)),
            max_bytes=lambda call: bounds.stream_bytes_for(call.request),
            answer=answers.streamed,
            accept=ANYTHING,
        ),
        "convert": Chapter(
            timeout_s=lambda call: changer.timeout_s(timeouts, call),
            max_bytes=lambda call: changer.most_bytes(bounds, call)[0],
            answer=answers.changed,
        ),
        "translate": Chapter(
            timeout_s=lambda call: timeouts.translation_s(characters_of(call.request)),
            max_bytes=lambda call: min(bounds.answer_bytes, largest_answer(call.request)),
            answer=answers.translated,
        ),
    }


class Answering:
    """Give a :class:`BadAnswer` of the block the answer's trace id, and end the connection it came on."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def __enter__(self) -> None:
        """Begin to read."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Add what the answer's head tells to what is wrong with its body."""
        if isinstance(error, BadAnswer):
            # Whatever came on this connection, nothing more is expected of it.
            self._reply.drop()
            # Shortened by whoever masks it, afterwards.
            error.trace_id = value_of(self._reply.headers, TRACE_HEADER)


class _Answers:
    """Reads the answers to one client."""

    def __init__(self, reach: Reach, downloader: Downloader) -> None:
        self._reach, self._downloader = reach, downloader
        content = reach.redactor.for_content()
        self._clean = reach.redactor.clean
        self._clean_text, self._clean_words = content.clean, content.clean_words

    async def spoken(self, call: Call[GenerateRequest], came: Arrived) -> Spoken:
        text = call.request.text
        return await self._heard(
            call,
            came,
            decode=partial(decode_generate, characters=len(text)),
            billed_characters=billed_characters(text),
            max_file_bytes=self._reach.bounds.download_bytes_for,
        )

    async def changed(self, call: Call[ConvertRequest], came: Arrived) -> Spoken:
        return await self._heard(
            call,
            came,
            decode=partial(decode_convert, clip_seconds=changer.upload_in(call).audio_seconds),
            billed_characters=changer.billed_for(changer.upload_in(call)),
            max_file_bytes=lambda _: changer.most_bytes(self._reach.bounds, call)[1],
        )

    async def _heard(
        self,
        call: Call[Any],
        came: Arrived,
        *,
        decode: Callable[[bytes], Generated | Converted],
        billed_characters: int,
        max_file_bytes: Callable[[Any], int],
    ) -> Spoken:
        body = came.reply.body
        with Answering(came.reply):
            said = await _aside(len(body), partial(decode, body))
            try:
                audio = said.audio
                if audio is None:
                    audio = await self._downloader.fetch(
                        said.audio_url or "",
                        self._reach.url(came.region, call.operation),
                        timeout_s=self._reach.timeouts.download_s,
                        max_bytes=max_file_bytes(call.request),
                    )
                look = partial(inspected, audio, call.request, said.audio_seconds, self._clean)
                info, differences = await _aside(len(audio), look)
            except BadAnswer as error:
                error.remaining_characters = said.remaining_characters
                raise
        heard = said.transcription if isinstance(said, Converted) else None
        return self._spoken(
            audio,
            info,
            self._warnings(came, said.warning, *said.notes, *differences),
            came,
            billed_characters=billed_characters,
            words=self._clean_words(said.words) if isinstance(said, Generated) else [],
            remaining_characters=said.remaining_characters,
            said_seconds=said.audio_seconds,
            transcription=None if heard is None else self._clean_text(heard),
        )

    async def streamed(self, call: Call[StreamRequest], came: Arrived) -> Spoken:
        reply = came.reply
        with Answering(reply):
            look = partial(whole_audio, reply, call.request, self._clean)
            audio, info, differences = await _aside(len(reply.body), look)
        warnings = self._warnings(came, *differences)
        billed = billed_characters(call.request.text)
        return self._spoken(audio, info, warnings, came, billed_characters=billed, words=[])

    def _spoken(
        self,
        audio: bytes,
        info: AudioInfo,
        warnings: tuple[str, ...],
        came: Arrived,
        *,
        billed_characters: int,
        words: list[tuple[str, int, int]],
        remaining_characters: int | None = None,
        said_seconds: float | None = None,
        transcription: str | None = None,
    ) -> Spoken:
        return Spoken(
            audio=audio,
            format=info.format,
            sample_rate_hz=info.sample_rate_hz,
            channels=info.channels,
            audio_seconds=info.audio_seconds,
            words=words,
            billed_characters=billed_characters,
            remaining_characters=remaining_characters,
            warnings=warnings,
            said_seconds=said_seconds,
            transcription=transcription,
            came_on=CameOn(came.reply.drop),
            **self._facts(came),
        )

    async def translated(self, call: Call[TranslateRequest], came: Arrived) -> Translated:
        request, reply = call.request, came.reply
        with Answering(reply):
            said = await _aside(len(reply.body), partial(decode_translate, reply.body, request.texts))
        # A service may say back in a text whatever it was sent.
        said = replace(
            said,
            texts=tuple(map(self._clean_text, said.texts)),
            target=None if said.target is None else self._clean(said.target),
        )
        return translated(said, request, self._warnings(came), **self._facts(came))

    def _facts(self, came: Arrived) -> dict[str, Any]:
        """Return what every answer says of its attempt."""
        return {
            "trace_id": trace_id_of(came.reply.headers, self._clean),
            "latency_ms": (time.perf_counter() - came.started_s) * 1000,
            "region": came.region,
        }

    def _warnings(self, came: Arrived, *further: str | None) -> tuple[str, ...]:
        return warnings_of(came.reply.headers, *further, clean=self._clean)


async def _aside(size: int, work: Callable[[], T]) -> T:
    """Return what `work` returns; a large answer is looked at in a thread, while other calls go on."""
    return work() if size < _LARGE_BYTES else await asyncio.to_thread(work)
