"""Serve one WebSocket by the rules of ``wire.contexts``.

A context is one text that a client sends in chunks. A turn is the life of a context, from its first to its
final frame. Three kinds of tasks run at the same time. The reader receives frames, unless too much text or
audio waits. For each chunk, a task waits until it may begin, has the chunk spoken and billed, and encodes the
audio. The writer sends the frames that are ready. If a client reads nothing, the chunk tasks pause first and
then the reader, so memory does not grow.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from aiohttp import WSMsgType, web

from speechframe.audio.codec import convert_seconds_to_frames
from speechframe.audio.streams import StreamEncoder
from speechframe.engines.base import Utterance
from speechframe.engines.streaming import choose_pause_s
from speechframe.local.service.books import quota
from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.answers import Refusal
from speechframe.local.service.http.outbox import Outbox
from speechframe.local.service.http.readers import Reader
from speechframe.local.service.http.slots import RequestSlots
from speechframe.local.service.speech.catalogue import Catalogue, ResolvedVoice
from speechframe.local.service.speech.paid import paid_call
from speechframe.local.service.speech.speaking import (
    VARIATION_IGNORED,
    PartFailed,
    PartRefused,
    SpokenPart,
    encode_part,
    make_utterance,
    speak,
    warn_unused_words,
)
from speechframe.local.service.state import State
from speechframe.local.service.workers.pool import PoolClosed, WorkerLost
from speechframe.local.service.workers.speech import AudioFormat
from speechframe.spec import billing, chosen
from speechframe.spec.codes import CloseCode, ErrorCode, HttpErrorCode
from speechframe.spec.limits import Pool
from speechframe.spec.socket import ErrorFrame, FinalFrame, VoiceConfig, WarningFrame
from speechframe.spec.speech import Model
from speechframe.spec.texts import Pause, count_billed_characters, has_speech, split_pauses
from speechframe.wire.contexts import Contexts
from speechframe.wire.frames import encode_frame
from speechframe.wire.turns import Action, Cancel, Close, Finish, Generate, Send

log = logging.getLogger("speechframe.service")

# Messages that contain a frame of the client. Any other message ends the socket.
_DATA_TYPES = frozenset({WSMsgType.TEXT, WSMsgType.BINARY})


class _ContextSlots:
    """The slots of a key for contexts. HTTP streams and other sockets of the key use the same slots."""

    def __init__(self, slots: RequestSlots, key: Key) -> None:
        self._slots, self._key = slots, key

    def take(self) -> bool:
        """Take a slot and return True, or return False if all slots are taken."""
        return self._slots.take_slot(self._key, Pool.STREAMING)

    def free(self) -> None:
        """Give a slot back."""
        self._slots.give_back_slot(self._key, Pool.STREAMING)


@dataclass
class _Voice:
    """The voice of a ``voice_config``, with warnings about ignored fields.

    `manner` is the description of the speech for a worker, without the text.
    """

    config: VoiceConfig | None
    resolved: ResolvedVoice
    manner: Utterance
    warnings: list[str]


@dataclass
class _TurnFile:
    """The audio file of a turn while it is made.

    Parameters
    ----------
    turn
        Number of the turn.
    voice
        The voice of the latest chunk.
    encoder
        The encoder. None before the first sound.
    input_rate_hz
        Sample rate of the encoder's input. Voices with other rates are resampled.
    before
        Text of the last spoken chunk, which determines the pause before the next one. None before the first.
    silence_s
        Seconds of silence to send before the first sound.
    unused_words
        Words of the pronunciation dictionary that no chunk has contained so far. None before the first chunk.
    """

    turn: int
    voice: _Voice | None = None
    encoder: StreamEncoder | None = None
    input_rate_hz: int = 0
    before: str | None = None
    silence_s: float = field(default=0.0)
    unused_words: tuple[str, ...] | None = None


def _make_voice_config(voice_id: str | None) -> VoiceConfig:
    return VoiceConfig.model_validate({"voice_id": voice_id})


class Session:
    """An open WebSocket, after the upgrade of its HTTP request.

    Parameters
    ----------
    state
        The shared objects of the service.
    key
        The key that pays.
    socket
        The WebSocket.
    model
        The model whose voices speak.
    shape
        Format, channels and sample rate of the audio.
    trace_id
        Trace id of the socket.
    reader
        The client. It counts bytes that wait for the client.
    """

    def __init__(
        self,
        state: State,
        key: Key,
        socket: web.WebSocketResponse,
        *,
        reader: Reader,
        model: Model,
        shape: AudioFormat,
        trace_id: str,
    ) -> None:
        self.billed_millis = 0
        self._state, self._key, self._socket = state, key, socket
        self._model, self._shape, self._trace_id = model, shape, trace_id
        self._loop = asyncio.get_running_loop()
        self._contexts = Contexts(
            _ContextSlots(state.slots, key),
            now_s=self._loop.time(),
            trace_id=trace_id,
            voice_problem=self._find_voice_problem,
            idle_s=state.config.socket_idle_s,
        )
        self._threads = state.threads.get_threads(key.key_hash)
        self._reader = reader
        self._outbox = Outbox(reader)
        self._gate = state.live.get_chunk_semaphore(key, state.slots.get_cap(key, Pool.STREAMING))
        self._files: dict[str | None, _TurnFile] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._progress = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _catalogue(self) -> Catalogue:
        return self._state.catalogues.by_model[self._model]

    async def run(self) -> None:
        """Serve until either side closes the socket or the service stops."""
        reading = asyncio.create_task(self._read())
        writing = asyncio.create_task(self._write())
        stopping = asyncio.create_task(self._state.live.stopping.wait())
        everything = {reading, writing, stopping}
        try:
            self._carry_out([])
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() and not reading.done() and not writing.done():
                await self._finish_and_close(reading, writing)
        finally:
            self._release_all()
            for task in everything:
                task.cancel()
            for gone in await asyncio.gather(*everything, return_exceptions=True):
                # An OSError means that the client has left or reads nothing. This is no fault of the service.
                if isinstance(gone, Exception) and not isinstance(gone, OSError):
                    log.error("a socket failed, trace %s", self._trace_id, exc_info=gone)

    async def _finish_and_close(self, reading: asyncio.Task[None], writing: asyncio.Task[None]) -> None:
        """Read no more frames, send the audio of the chunks that are under way, and close the socket."""
        reading.cancel()
        while self._tasks and not writing.done():
            await asyncio.wait([*self._tasks.values(), writing], return_when=asyncio.FIRST_COMPLETED)
        self._outbox.put(None)
        await writing

    def _release_all(self) -> None:
        """Give back all slots and cancel all chunk tasks, after the socket has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._contexts.close()
        for task in self._tasks.values():
            task.cancel()

    async def _read(self) -> None:
        while True:
            await self._outbox.wait_for_room()
            while self._is_behind():
                self._progress.clear()
                await self._progress.wait()
            message = await self._socket.receive()
            if message.type not in _DATA_TYPES:
                return
            await self._state.wait_for_turn(len(message.data))
            self._carry_out(self._contexts.receive(message.data, now_s=self._loop.time()))

    def _is_behind(self) -> bool:
        return (
            self._contexts.backlog_characters > chosen.MAX_WAITING_SOCKET_CHARACTERS
            or self._contexts.ended_turns > chosen.MAX_WAITING_SOCKET_TURNS
        )

    async def _write(self) -> None:
        while (frame := await self._outbox.get()) is not None:
            await self._socket.send_str(frame)
        await self._socket.close(code=CloseCode.NORMAL)

    def _carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Send(frame):
                    self._outbox.put(encode_frame(frame))
                    if isinstance(frame, FinalFrame) or (isinstance(frame, ErrorFrame) and frame.fatal):
                        self._files.pop(frame.context_id, None)
                case Generate():
                    self._begin_task(action.generation, self._generate_chunk(action))
                case Finish(turn):
                    self._begin_task(-turn, self._finish_turn(turn))
                case Cancel(generation, _):
                    if (task := self._tasks.get(generation)) is not None:
                        task.cancel()
                case Close():
                    self._outbox.put(None)
        self._progress.set()
        self._set_timer()

    def _begin_task(self, name: int, work: Coroutine[Any, Any, None]) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    def _set_timer(self) -> None:
        """Set a timer for the next time at which a context has something to do, such as a timeout."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (due_s := self._contexts.due_s) is not None:
            self._timer = self._loop.call_at(due_s, self._run_due_actions)

    def _run_due_actions(self) -> None:
        # A timer may fire a little early, because its clock is coarser. So use the due time at least.
        now_s = max(self._loop.time(), self._contexts.due_s or 0.0)
        self._timer = None
        self._carry_out(self._contexts.take_due_actions(now_s=now_s))

    async def _generate_chunk(self, action: Generate) -> None:
        """Have a chunk spoken, and send its audio when the outbox has room. Errors become error frames."""
        try:
            await self._outbox.wait_for_room()
            await self._speak_chunk(action)
        except Refusal as refusal:
            # If the quota is used up, the frame has the code of the HTTP answer (chosen: socket-quota).
            exhausted = refusal.code is HttpErrorCode.QUOTA_EXHAUSTED
            code = refusal.code.value if exhausted else ErrorCode.INTERNAL_ERROR
            self._fail_turn(action, refusal.message, code)
        except WorkerLost:
            self._fail_turn(action, "the engine crashed or took too long; this text was not billed")
        except PartRefused as error:
            message = f"text: {error}; this text was not billed"
            self._fail_turn(action, message, HttpErrorCode.INVALID_REQUEST.value)
        except PartFailed as error:
            self._fail_turn(action, f"the speech engine failed: {error}; this text was not billed")
        except PoolClosed:
            self._fail_turn(action, "the service is stopping; this text was not billed")
        except Exception:
            log.exception("a chunk of a socket failed, trace %s", self._trace_id)
            self._fail_turn(action, "the service failed")
        else:
            self._carry_out(self._contexts.finish_chunk(action.generation, now_s=self._loop.time()))

    def _fail_turn(self, action: Generate, message: str, code: str = ErrorCode.INTERNAL_ERROR) -> None:
        # Forget this task before the contexts act, because they would cancel it.
        self._tasks.pop(action.generation, None)
        self._carry_out(self._contexts.fail_turn(action.turn, message, now_s=self._loop.time(), code=code))

    async def _speak_chunk(self, action: Generate) -> None:
        file = self._get_turn_file(action)
        voice = self._choose_voice(file, action)
        if not has_speech(action.text):
            await self._send_silence(file, action)
            return
        rate = voice.manner.rate
        pause_s = choose_pause_s(file.before, action.text, rate) if file.before is not None else 0.0
        part = await self._speak_billed(
            voice, action, pause_s + file.silence_s, is_first=file.encoder is None
        )
        for warning in part.warnings:
            self._send_warning(action.context_id, action.turn, chosen.TEXT_WARNING_CODE, warning)
        unused = part.unused_words
        file.unused_words = tuple(
            word for word in unused if file.unused_words is None or word in file.unused_words
        )
        if not len(part.samples):
            return
        file.before, file.silence_s = action.text, 0.0
        await self._send_audio(file, action, part)

    async def _send_silence(self, file: _TurnFile, action: Generate) -> None:
        """Process a chunk with nothing but pauses. Send its silence now, or before the turn's first sound."""
        seconds = sum(part.seconds for part in split_pauses(action.text) if isinstance(part, Pause))
        if file.encoder is None:
            file.silence_s += seconds
        elif seconds:
            silence = np.zeros(convert_seconds_to_frames(seconds, file.input_rate_hz), np.float32)
            await self._send_audio(file, action, SpokenPart(silence, file.input_rate_hz, ()))
            # The next chunk begins like a text after a pause marker.
            file.before = ""

    async def _send_audio(self, file: _TurnFile, action: Generate, part: SpokenPart) -> None:
        if file.encoder is None:
            file.encoder, file.input_rate_hz = (
                self._shape.make_encoder(part.sample_rate_hz),
                part.sample_rate_hz,
            )
        async for data in encode_part(file.encoder, part.resample_to(file.input_rate_hz), self._threads):
            self._carry_out(self._contexts.send_audio(action.generation, data, now_s=self._loop.time()))
            await self._outbox.wait_for_room()

    async def _speak_billed(
        self, voice: _Voice, action: Generate, pause_s: float, *, is_first: bool
    ) -> SpokenPart:
        """Return the audio of a chunk. Bill the chunk, unless its audio is empty."""
        millis = billing.compute_speech_millicredits(action.text)
        message = f"the text has {count_billed_characters(action.text):,} billed characters"
        reservation = quota.Reservation(self._state.owner.name, self._key, None, "stream", millis)
        async with self._gate, paid_call(self._state, reservation, message) as paid:
            part = await speak(
                self._state,
                self._key,
                voice.resolved.engine,
                replace(voice.manner, text=action.text),
                reader=self._reader,
                pause_s=pause_s,
                # The rest of the turn is unknown, so the first chunk is checked as the whole text.
                whole=action.text if is_first else None,
                under_way=True,
            )
            due_millis = millis if len(part.samples) else 0
            await paid.settle(millis=due_millis)
        self.billed_millis += due_millis
        return part

    async def _finish_turn(self, turn: int) -> None:
        """Send the last bytes of a turn's audio file, and warn about unused words of the dictionary."""
        context_id, file = next(
            ((name, file) for name, file in self._files.items() if file.turn == turn), (None, None)
        )
        data = b""
        if file is not None and file.encoder is not None:
            data = await self._threads.run(file.encoder.finish)
            for warning in warn_unused_words(file.unused_words or ()):
                self._send_warning(context_id, turn, chosen.VOICE_WARNING_CODE, warning)
        self._carry_out(self._contexts.finish_turn(turn, data, now_s=self._loop.time()))

    def _get_turn_file(self, action: Generate) -> _TurnFile:
        file = self._files.get(action.context_id)
        if file is None or file.turn != action.turn:
            file = self._files[action.context_id] = _TurnFile(action.turn)
        return file

    def _choose_voice(self, file: _TurnFile, action: Generate) -> _Voice:
        """Return the voice of a chunk. Warn once about ignored fields of its voice_config."""
        if file.voice is None or file.voice.config is not action.voice_config:
            # Forget the unused words, because this voice_config has another dictionary.
            file.voice, file.unused_words = self._make_voice(action.voice_config), None
            for warning in file.voice.warnings:
                self._send_warning(action.context_id, action.turn, chosen.VOICE_WARNING_CODE, warning)
        return file.voice

    def _make_voice(self, config: VoiceConfig | None) -> _Voice:
        given = config or _make_voice_config(None)
        resolved, warnings = self._resolve_voice(given)
        if self._model is not Model.GEN2 and given.variation is not None:
            warnings.append(VARIATION_IGNORED)
        return _Voice(config, resolved, make_utterance(given, resolved, self._model), warnings)

    def _resolve_voice(self, config: VoiceConfig) -> tuple[ResolvedVoice, list[str]]:
        """Return the voice of a config and warnings. A style or locale that the voice lacks is ignored."""
        warnings: list[str] = []
        locale = {"locale": None, "multi_native_locale": None}
        for ignored_fields in ({}, {"style": None}, locale):
            try:
                return self._catalogue.resolve_voice(config.model_copy(update=ignored_fields)), warnings
            except Refusal as refusal:
                warnings = [f"voice_config: {refusal.message}; it is ignored"]
        bare = _make_voice_config(config.voice_id)
        return self._catalogue.resolve_voice(bare), [*warnings, "voice_config: locale and style are ignored"]

    def _find_voice_problem(self, config: VoiceConfig) -> str | None:
        try:
            self._catalogue.resolve_voice(_make_voice_config(config.voice_id))
        except Refusal as refusal:
            return refusal.message
        return None

    def _send_warning(self, context_id: str | None, turn: int, code: str, message: str) -> None:
        frame = WarningFrame(
            warning=message, warning_code=code, context_id=context_id, trace_id=f"{self._trace_id}-{turn}"
        )
        self._outbox.put(encode_frame(frame))
