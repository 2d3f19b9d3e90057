"""Good answers as they came, and what is read in them: audio, words, warnings, translations."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from operator import itemgetter
from typing import Any

from multidict import MultiMapping

from speechframe.audio.codec import AudioInfo, forced_shape, inspect, with_length
from speechframe.client.exchange import Reply
from speechframe.client.masking import Redactor, without_secrets
from speechframe.errors import AudioError, BadAnswer
from speechframe.spec import billing, locales
from speechframe.spec.chosen import ROUTE_WARNING, read_route
from speechframe.spec.limits import default_sample_rate_hz
from speechframe.spec.speech import Format, GenerateRequest, Model
from speechframe.spec.texts import billed_characters
from speechframe.spec.translate import TranslateRequest
from speechframe.wire.answers import (
    NO_END,
    SecretMasker,
    balance_in,
    one_line,
    tells_its_end,
    warnings_of,
    words_instead,
)
from speechframe.wire.changer import decode_convert
from speechframe.wire.speech import SpokenAnswer, decode_generate
from speechframe.wire.translate import decode_translate
from speechframe.writing.words import counted

_HEAD_BYTES = 4096
_SHOWN_CHARACTERS = 80
_RAW = frozenset({Format.PCM, Format.ALAW, Format.ULAW})
_LENGTH_TOLERANCE_S = 0.25
_LENGTH_TOLERANCE = 0.02
_WORD = itemgetter(0)  # of a word with its times
_PLACES = re.compile(r"(.+): (texts [0-9,-]+)")


@dataclass(frozen=True, slots=True)
class Raw:
    """A good answer as it came, not read yet; :meth:`Call.decode` reads it.

    Parameters
    ----------
    body, headers, trace_id, region
        Of the answer; the body is unpacked.
    latency_ms
        Time of the attempt.
    has_audio
        Whether the audio is in the body; otherwise it may name a URL.
    redactor, reply
        What masks keys in the rest of the answer; what reads a stream, and closes the connection.
    """

    body: bytes = field(repr=False)
    headers: MultiMapping[str] = field(repr=False)
    trace_id: str | None
    latency_ms: float
    region: str
    has_audio: bool = False
    redactor: Redactor = field(default_factory=Redactor, repr=False, compare=False)
    reply: Reply = field(default_factory=Reply, repr=False, compare=False)


def explained(error: BadAnswer, raw: Raw, load: Callable[[bytes], Any] | None = None) -> BadAnswer:
    """Return the error without secrets, with the trace id and a description of what `load` cannot read."""
    # Not used again: if it held an answer too many, each call on it would get the answer of the call before.
    raw.reply.drop()
    if error.remaining_characters is None:
        error.remaining_characters = balance_in(raw.body)
    try:
        if load is not None:
            load(raw.body)
    except BadAnswer as no_json:
        kind = one_line(raw.headers.get("Content-Type") or "no content type", _SHOWN_CHARACTERS)
        head = raw.body[:_HEAD_BYTES].decode("utf-8", "replace")
        start = one_line(head, _SHOWN_CHARACTERS, raw.redactor.clean)
        said = f"it begins {start!r}" if start else "it is empty"
        error.args = (f"the answer is no JSON object: status 200, {kind}, {said}. {no_json}",)
    error.trace_id = raw.trace_id
    return without_secrets(error, raw.redactor)


@dataclass(frozen=True, slots=True)
class Spoken:
    """The answer to a call that gives audio, which was found to be audio (sections 2.3 and 2.5).

    Parameters
    ----------
    audio
        The encoded audio, as the service sent it.
    format, sample_rate_hz, channels, audio_seconds
        What the audio's own headers say (for raw formats: what was asked for), not what the answer claims.
    words
        Word, start and end in milliseconds; none from the voice changer and of streams.
    billed_characters, remaining_characters
        What this call should have cost, by the rule of `spec.billing`; the balance after it, if it is said.
    warnings
        The answer's ``warning``, its ``X-Speech-Warning`` headers, and what the client noticed itself
        (such as words that run backwards, or a length that is not the audio's).
    trace_id, region, latency_ms, attempts
        The service's id of the answer, the region that gave it, the time of the successful attempt with its
        download, and how many attempts it took.
    said_seconds
        The length the answer claims; None where it claims none, or what is no length.
    transcription
        What was said in the clip, from the voice changer where it was asked for.
    """

    audio: bytes = field(repr=False)
    format: Format
    sample_rate_hz: int
    channels: int
    audio_seconds: float
    words: list[tuple[str, int, int]] = field(repr=False)
    billed_characters: int
    remaining_characters: int | None
    warnings: tuple[str, ...]
    trace_id: str | None
    latency_ms: float
    region: str
    attempts: int = 1
    said_seconds: float | None = None
    transcription: str | None = field(default=None, repr=False)


def spoken_of(raw: Raw, audio: bytes | None, request: Any, clip_seconds: float | None) -> Spoken:
    """Return what an answer holds, with the `audio` behind its URL, where it has one.

    BadAnswer is raised where that is no audio, or where nothing in a stream says that it is all there.
    """
    if clip_seconds is not None:
        said = decode_convert(raw.body, clip_seconds=clip_seconds)
    elif isinstance(request, GenerateRequest):
        said = decode_generate(raw.body, characters=len(request.text))
    else:
        said = _streamed(raw)
    clean, content = raw.redactor.clean, raw.redactor.content
    rate_hz = request.sample_rate or default_sample_rate_hz(getattr(request, "model", None) or Model.FALCON_2)
    asked, rate_hz = forced_shape(request.format, request.channel_type, int(rate_hz))
    audio = said.audio if audio is None else audio
    if audio is None:
        raise BadAnswer("the answer names a URL for its audio, which was not fetched")
    found = _inspected(audio, request.format, rate_hz, asked.channels, clean)
    notes = [said.warning, *said.notes]
    if found.format is not request.format:
        notes.append(f"asked for {request.format.value}, got {found.format.value}")
    if found.sample_rate_hz != rate_hz:
        notes.append(f"asked for {rate_hz} Hz, got {found.sample_rate_hz} Hz")
    if found.channels != asked.channels:
        plural = "s" if found.channels > 1 else ""
        notes.append(f"asked for {asked.value}, got {found.channels} channel{plural}")
    seconds, said_seconds = found.audio_seconds, said.audio_seconds
    off_s = abs(seconds - said_seconds) if said_seconds is not None else 0.0
    if off_s > max(_LENGTH_TOLERANCE_S, _LENGTH_TOLERANCE * (said_seconds or 0.0)):
        notes.append(f"the answer says {said_seconds:.2f} s of audio, it holds {seconds:.2f} s")
    words, joined = said.words, "\n".join(map(_WORD, said.words))
    if content.clean(joined) is not joined:
        words = [(content.clean(word), start_ms, end_ms) for word, start_ms, end_ms in words]
    if clip_seconds is None:
        billed = billed_characters(request.text)
    else:
        billed = ceil(billing.convert_millicredits(clip_seconds) / billing.CREDIT)
    return Spoken(
        audio=audio,
        format=found.format,
        sample_rate_hz=found.sample_rate_hz,
        channels=found.channels,
        audio_seconds=seconds,
        words=words,
        billed_characters=billed,
        remaining_characters=said.remaining_characters,
        warnings=warnings_of(raw.headers, *notes, clean=clean),
        trace_id=raw.trace_id,
        latency_ms=raw.latency_ms,
        region=raw.region,
        said_seconds=said_seconds,
        transcription=said.transcription and content.clean(said.transcription),
    )


def _streamed(raw: Raw) -> SpokenAnswer:
    problem = words_instead(raw.headers) if tells_its_end(raw.headers) else NO_END
    if problem is not None:
        raise BadAnswer(problem)
    audio = raw.body
    # The header of a stream cannot know how long it will be; here that is known.
    with suppress(AudioError):
        audio = with_length(audio)
    return SpokenAnswer(audio)


def _inspected(data: bytes, format: Format, rate_hz: int, channels: int, clean: SecretMasker) -> AudioInfo:
    """Return what audio is; BadAnswer says why it cannot be used."""
    # Some services wrap raw samples in a file with a header.
    raw: dict[str, Any] = {"format": format, "sample_rate_hz": rate_hz, "channels": channels}
    problem = ""
    for how in (raw, {}) if format in _RAW else ({},):
        try:
            if (info := inspect(data, **how)).audio_seconds:
                return info
            problem = problem or "it holds no samples"
        except AudioError as error:
            problem = problem or str(error)
    # The error's words quote the first bytes: they are left out if those hold a secret.
    head = data[:_HEAD_BYTES].decode("latin-1")
    raise BadAnswer(f"the audio cannot be read: {problem if clean(head) == head else 'it is text'}")


@dataclass(frozen=True, slots=True)
class Translated:
    """The answer to a translation call (section 2.6).

    Parameters
    ----------
    translations
        One a text, in the order asked.
    routes
        The languages each text went through (``en>pt-BR>es``), as far as the service or the call says.
    text_warnings
        What the service says of single texts.
    billed_characters, trace_id, latency_ms, region, attempts
        As of :class:`Spoken`.
    credits_used, target
        What the answer says it cost, and the language it says it is in; None when it does not.
    warnings
        What concerns the call as a whole: of the service, and what the client noticed itself.

    Examples
    --------
    >>> with SyncClient() as client:  # doctest: +SKIP
    ...     client.translate(["Good morning."], target="fr-FR").translations
    ('Bonjour.',)
    """

    translations: tuple[str, ...] = field(repr=False)
    routes: tuple[str | None, ...]
    text_warnings: tuple[tuple[str, ...], ...]
    billed_characters: int
    credits_used: float | None
    warnings: tuple[str, ...]
    trace_id: str | None
    latency_ms: float
    region: str
    attempts: int = 1
    target: str | None = None


def translated_of(raw: Raw, request: TranslateRequest) -> Translated:
    """Return what the answer to a translation call holds, with every warning at the text it is about."""
    said = decode_translate(raw.body, request.texts)
    translations = []
    for place, translation in enumerate(said.texts):
        if isinstance(translation, BadAnswer):
            raise BadAnswer(f"text {place}: {translation}")
        translations.append(translation)
    source, target = request.source_language, request.target_language
    routes, of_texts, notes = placed_warnings(warnings_of(raw.headers), len(request.texts))
    if source is not None:
        # A text without a route went directly, unless it has a warning: then its route is not known.
        routes = [
            way or (None if told else f"{source}>{target}")
            for way, told in zip(routes, of_texts, strict=True)
        ]
    price = billing.to_credits(billing.translate_millicredits(request.texts))
    notes += said.notes
    if said.credits_used is not None and said.credits_used != price:
        notes.append(f"the service says the call cost {counted(said.credits_used, 'credit')}, not {price:g}")
    if said.target is not None and locales.is_another(said.target, target):
        notes.append(f"the answer says it is in {said.target}, not in {target}")
    return Translated(
        translations=tuple(translations),
        routes=tuple(routes),
        text_warnings=tuple(map(tuple, of_texts)),
        billed_characters=sum(map(len, request.texts)),
        credits_used=said.credits_used,
        warnings=tuple(notes),
        trace_id=raw.trace_id,
        latency_ms=raw.latency_ms,
        region=raw.region,
        target=said.target,
    )


def placed_warnings(
    warnings: Sequence[str], count: int
) -> tuple[list[str | None], list[list[str]], list[str]]:
    """Return the route of each text, the warnings of each text, and those of the call as a whole."""
    routes: dict[int, str] = {}
    of_texts: dict[int, list[str]] = {place: [] for place in range(count)}
    of_all = []
    for warning in warnings:
        found = _PLACES.fullmatch(warning)
        if way := read_route(warning):
            routes |= dict.fromkeys(way[1], way[0])
        # Any other warning names its texts as a route does: `read_route` reads them.
        elif found and (placed := read_route(f"{ROUTE_WARNING}-; {found[2]}")):
            for place in of_texts.keys() & placed[1]:
                of_texts[place].append(found[1])
        else:
            of_all.append(warning)
    return [routes.get(place) for place in range(count)], list(of_texts.values()), of_all
