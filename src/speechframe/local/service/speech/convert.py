"""Change the voice of a clip: ``POST /v1/voice-changer/convert`` (section 2.5 of the service document).

The docstring of the package ``service`` lists the order of checks. An upload adds some steps. The form is
read to disk, and its fields are checked. Then the request waits for a slot. Then the clip is fetched, if the
form contains a ``file_url``, and decoded. The price depends on the length of the clip. It is reserved before
the voice is changed.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from aiohttp import web

from speechframe.engines.base import Conversion
from speechframe.local.service.books import quota
from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.answers import refuse
from speechframe.local.service.http.auth import require_key
from speechframe.local.service.http.body import check_fields, describe_unknown_fields
from speechframe.local.service.http.fetch import fetch_file
from speechframe.local.service.http.forms import ReceivedForm, receive_form
from speechframe.local.service.http.middleware import LOG_NOTE_KEY
from speechframe.local.service.http.uploads import ReceivedFile
from speechframe.local.service.speech.audio import build_url, send_json
from speechframe.local.service.speech.catalogue import ResolvedVoice
from speechframe.local.service.speech.paid import (
    hold_slot,
    paid_call,
    read_mark,
    read_take,
    refuse_no_slot,
    run_job,
)
from speechframe.local.service.speech.speaking import collect_warnings
from speechframe.local.service.state import STATE, State
from speechframe.local.service.workers.changer import ChangeJob, MeasureJob
from speechframe.local.service.workers.job import WorkerReply
from speechframe.local.service.workers.speech import AudioFormat
from speechframe.spec import billing, chosen
from speechframe.spec.changer import ConvertRequest, ConvertResponse
from speechframe.spec.limits import Pool
from speechframe.spec.speech import Model, Pronunciation

# Names of the form fields of which one contains the clip or its address.
_FILE_FIELD, _FILE_URL_FIELD = "file", "file_url"

# Assumed smallest size in bytes of one second of a clip (8 kbit/s). The time limit for decoding uses it.
_MIN_BYTES_PER_S = 1000


@dataclass(frozen=True)
class _ChangerCall:
    """A checked request, with its key, its warnings, and the names of the engines to use.

    `changer` or `recogniser` is None if the request does not need this engine.
    """

    request: ConvertRequest
    key: Key
    resolved: ResolvedVoice
    conversion: Conversion
    changer: str | None
    recogniser: str | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _DecodedClip:
    """A decoded clip: file of its float32 samples, sample rate in Hz, length in seconds, and warnings."""

    samples: Path
    sample_rate_hz: int
    audio_seconds: float
    warnings: tuple[str, ...]


async def convert(request: web.Request) -> web.StreamResponse:
    """Answer a request to change the voice of a clip."""
    state = request.app[STATE]
    key = require_key(request)
    with refuse_no_slot(state), state.slots.count_upload(key):
        async with receive_form(request, state, key.key_hash, files=(_FILE_FIELD,)) as form:
            call = _read_call(request, state, key, form)
            async with hold_slot(state, key, Pool.OTHER, waits=True):
                return await _change_voice(request, state, call, form)


def _read_call(request: web.Request, state: State, key: Key, form: ReceivedForm) -> _ChangerCall:
    wanted, result = check_fields(ConvertRequest, form.collect_fields())
    if (wanted.audio_duration or 0.0) > state.config.max_audio_seconds:
        refuse(
            f"audio_duration is longer than this service allows (got {wanted.audio_duration:g}); "
            f"allowed: 0 to {state.config.max_audio_seconds:g} seconds"
        )
    resolved = state.catalogues.by_model[Model.GEN2].resolve_voice(wanted)
    needs_words = wanted.return_transcription or not wanted.retain_accent
    needs_transcript = needs_words and _get_transcription(wanted) is None
    warnings = [describe_unknown_fields(result.unknown)]
    if wanted.pronunciation_dictionary and wanted.retain_accent:
        warnings.append("pronunciation_dictionary is for retain_accent=false only and was ignored")
    conversion = Conversion(
        resolved.voice.voice_id,
        resolved.locale,
        resolved.style,
        pitch=wanted.pitch or 0,
        rate=wanted.rate or 0,
        variation=wanted.variation,
        audio_duration_s=wanted.audio_duration or 0.0,
        retain_prosody=wanted.retain_prosody,
        take=read_take(request),
    )
    return _ChangerCall(
        wanted,
        key,
        resolved,
        conversion,
        _choose_changer(state) if wanted.retain_accent else None,
        _choose_recogniser(state, wanted) if needs_transcript else None,
        tuple(warning for warning in warnings if warning),
    )


def _choose_changer(state: State) -> str:
    found = _choose_engine(state, "changer", state.config.changer)
    if found is None:
        refuse("no voice changer is installed here: pip install 'speechframe[local]'")
    return found


def _choose_recogniser(state: State, wanted: ConvertRequest) -> str:
    found = _choose_engine(state, "recogniser", state.config.recogniser)
    if found is None:
        field = "return_transcription=true" if wanted.retain_accent else "retain_accent=false"
        refuse(
            f"{field} needs a transcription of the clip, and no speech recogniser is installed here; give "
            "transcription, or install one where the service runs: pip install 'speechframe[asr]'"
        )
    return found


def _choose_engine(state: State, kind: str, asked: str | None) -> str | None:
    return asked or min(state.pools.installed.get(kind, {}), default=None)


async def _change_voice(
    request: web.Request, state: State, call: _ChangerCall, form: ReceivedForm
) -> web.StreamResponse:
    # Check before the clip is fetched and decoded, so that a full queue refuses at once.
    state.pools.slow.check_room(call.key.key_hash)
    with contextlib.ExitStack() as stack:
        upload = form.files.get(_FILE_FIELD)
        field = _FILE_FIELD
        if upload is None:
            assert call.request.file_url is not None  # noqa: S101 - the model asks for exactly one of the two
            path = stack.enter_context(state.uploads.lend_path())
            upload = await fetch_file(call.request.file_url, state, call.key.key_hash, path)
            field = _FILE_URL_FIELD
        source = await _decode_clip(
            state, call.key, field, upload, stack.enter_context(state.uploads.lend_path())
        )
        _check_transcription(call.request, source)
        return await _answer(request, state, call, upload, source)


async def _decode_clip(
    state: State, key: Key, field: str, upload: ReceivedFile, samples: Path
) -> _DecodedClip:
    most_seconds = min(state.config.max_audio_seconds, upload.size_bytes / _MIN_BYTES_PER_S)
    reply = await run_job(
        state.pools.slow,
        MeasureJob(upload.path, state.config.max_audio_seconds, samples),
        key,
        limit_s=state.config.limits.compute_job_limit_s(0, most_seconds),
        refused=field,
        failed="the clip could not be decoded",
    )
    rate_hz = json.loads(reply.result_json)["sample_rate_hz"]
    return _DecodedClip(samples, rate_hz, reply.facts.audio_seconds, reply.facts.warnings)


def _check_transcription(wanted: ConvertRequest, source: _DecodedClip) -> None:
    # The price depends only on the clip. A long text would make a short clip too cheap, so refuse it.
    characters = len((wanted.transcription or "").strip())
    characters_per_s = chosen.TRANSCRIPTION_CHARACTERS_PER_S
    max_characters = max(chosen.MAX_TEXT_CHARACTERS, int(characters_per_s * source.audio_seconds))
    if characters > max_characters:
        refuse(
            f"transcription is too long for a clip of {source.audio_seconds:,.1f} seconds "
            f"(got {characters:,} characters); allowed: at most {max_characters:,}, which are "
            f"{characters_per_s} a second but no less than {chosen.MAX_TEXT_CHARACTERS:,}"
        )


async def _answer(
    request: web.Request, state: State, call: _ChangerCall, upload: ReceivedFile, source: _DecodedClip
) -> web.StreamResponse:
    reservation = quota.Reservation(
        state.owner.name,
        call.key,
        read_mark(request, "convert", _hash_content(call, upload), take=call.conversion.take),
        "convert",
        billing.compute_voice_change_millicredits(source.audio_seconds),
    )
    price_text = (
        f"the clip has {source.audio_seconds:,.3f} seconds at "
        f"{billing.PRICES['convert'].credits:g} characters each"
    )
    clip = state.shelf.make_path(call.request.format.lower())
    with contextlib.ExitStack() as stack:
        async with paid_call(state, reservation, price_text, clip) as paid:
            reply = await _speak(state, call, source, clip)
            audio = None
            if call.request.encode_output_as_base64:
                # Open the file before it is on the shelf, because a full shelf may remove it at once.
                audio = stack.enter_context(clip.open("rb"))
            balance = await paid.settle(reply.facts)
        request[LOG_NOTE_KEY] = (
            f"key {call.key.fingerprint} voice {call.resolved.voice.voice_id} "
            f"seconds {source.audio_seconds:.1f} "
            f"engine {reply.facts.engine_ms:.1f} ms encode {reply.facts.encode_ms:.1f} ms"
        )
        warnings = collect_warnings((*call.warnings, *source.warnings), reply.facts)
        body = _build_body(build_url(request, clip), call, reply, balance, warnings)
        threads = state.threads.get_threads(call.key.key_hash)
        return await send_json(request, body, warnings, audio=audio, field="encoded_audio", threads=threads)


def _hash_content(call: _ChangerCall, upload: ReceivedFile) -> bytes:
    """Return the content of a request for its idempotency key: a hash of all fields, and the clip's hash."""
    wanted = call.request
    fields = {
        **asdict(call.conversion),
        "format": wanted.format,
        "channel_type": wanted.channel_type,
        "sample_rate_hz": int(wanted.sample_rate),
        "transcription": _get_transcription(wanted),
        "retain_accent": wanted.retain_accent,
        "pronunciations": {
            word: pronunciation.model_dump(mode="json")
            for word, pronunciation in _get_pronunciations(wanted).items()
        },
        "return_transcription": wanted.return_transcription,
    }
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).digest() + upload.sha256


async def _speak(state: State, call: _ChangerCall, source: _DecodedClip, clip: Path) -> WorkerReply:
    wanted = call.request
    asked = wanted.channel_type, wanted.sample_rate
    shape = AudioFormat.from_request(wanted.format, asked, Model.GEN2, names=("channel_type", "sample_rate"))
    job = ChangeJob(
        samples=source.samples,
        clip_rate_hz=source.sample_rate_hz,
        conversion=call.conversion,
        speaker=call.resolved.engine,
        changer=call.changer,
        recogniser=call.recogniser,
        transcription=_get_transcription(wanted),
        pronunciations=_get_pronunciations(wanted),
        shape=shape,
        path=clip,
    )
    limit_s = state.config.limits.compute_change_limit_s(
        len(wanted.transcription or ""), source.audio_seconds, wanted.audio_duration or 0.0
    )
    return await run_job(
        state.pools.slow,
        job,
        call.key,
        limit_s=limit_s,
        refused="the voice cannot be changed",
        failed="the voice changer failed",
        under_way=True,
    )


def _get_transcription(wanted: ConvertRequest) -> str | None:
    return (wanted.transcription or "").strip() or None


def _get_pronunciations(wanted: ConvertRequest) -> Mapping[str, Pronunciation]:
    return {} if wanted.retain_accent else wanted.pronunciation_dictionary or {}


def _build_body(
    audio_file: str, call: _ChangerCall, reply: WorkerReply, balance: quota.Balance, warnings: Sequence[str]
) -> bytes:
    """Return the answer as JSON, without the Base64 audio."""
    answer = ConvertResponse(
        audio_file=audio_file,
        audio_length_in_seconds=reply.facts.audio_seconds,
        remaining_character_count=balance.remaining_characters,
        encoded_audio=None,
        transcription=(
            json.loads(reply.result_json)["transcription"] if call.request.return_transcription else None
        ),
        warning="; ".join(warnings) or None,
    )
    return answer.model_dump_json(exclude_none=True).encode()
