"""Read audio, words, warnings and translations from answers with status 200."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from operator import itemgetter
from typing import Any

from multidict import MultiMapping

from speechframe.audio.codec import AudioInfo, get_forced_shape, inspect_audio, write_length
from speechframe.client.exchange import HttpReply
from speechframe.client.masking import Redactor, remove_secrets
from speechframe.errors import AudioError, BadAnswer
from speechframe.spec import billing, locales
from speechframe.spec.chosen import ROUTE_WARNING_START, read_route
from speechframe.spec.limits import get_default_sample_rate_hz
from speechframe.spec.speech import Format, GenerateRequest, Model
from speechframe.spec.texts import count_billed_characters
from speechframe.spec.translate import TranslateRequest
from speechframe.wire.answers import (
    NO_END_NOTE,
    SecretMasker,
    collect_warnings,
    describe_wrong_content,
    find_balance,
    has_marked_end,
    shorten_to_line,
)
from speechframe.wire.changer import decode_convert
from speechframe.wire.speech import SpokenAnswer, decode_generate
from speechframe.wire.translate import decode_translate
from speechframe.writing.words import format_count

# Length of the beginning of a body that is searched for secrets before an error quotes from it.
_HEAD_BYTES = 4096
# Longest quotation from a body or a header in an error.
_MAX_QUOTED_CHARACTERS = 80
# Formats without a header. Only the request states their sample rate and channels.
_RAW_FORMATS = frozenset({Format.PCM, Format.ALAW, Format.ULAW})
# The stated length of audio may differ from the measured length by the larger of these two, in seconds and as
# a share of the stated length. A larger difference adds a warning.
_LENGTH_TOLERANCE_S = 0.25
_LENGTH_TOLERANCE_SHARE = 0.02
_get_word_text = itemgetter(0)  # the text of a word with its times
# A warning about single texts of a call, which ends with their positions: "too long: texts 0,2-4".
_WARNING_WITH_TEXTS = re.compile(r"(.+): (texts [0-9,-]+)")


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An undecoded answer with status 200. :meth:`PreparedCall.decode` decodes it.

    Parameters
    ----------
    body, headers, trace_id, region
        Parts of the answer. The body is decompressed.
    latency_ms
        Duration of the attempt in milliseconds.
    has_audio
        True if the body contains the audio. Otherwise the body may contain the URL of the audio.
    redactor
        Masks keys in texts from the answer.
    reply
        The answer on its connection. Reads the rest of a stream, and closes the connection.
    """

    body: bytes = field(repr=False)
    headers: MultiMapping[str] = field(repr=False)
    trace_id: str | None
    latency_ms: float
    region: str
    has_audio: bool = False
    redactor: Redactor = field(default_factory=Redactor, repr=False, compare=False)
    reply: HttpReply = field(default_factory=HttpReply, repr=False, compare=False)


def complete_error(error: BadAnswer, raw: RawAnswer, load: Callable[[bytes], Any] | None = None) -> BadAnswer:
    """Add the balance and the trace id of an answer to its error, mask secrets, and return the error.

    If `load` raises BadAnswer for the body, the message describes the beginning of the body.
    """
    # Do not use the connection again, as it may hold a second answer. Each later call on the connection would
    # then receive the answer to the call before.
    raw.reply.drop()
    if error.remaining_characters is None:
        error.remaining_characters = find_balance(raw.body)
    try:
        if load is not None:
            load(raw.body)
    except BadAnswer as json_error:
        content_type = shorten_to_line(
            raw.headers.get("Content-Type") or "no content type", _MAX_QUOTED_CHARACTERS
        )
        head = raw.body[:_HEAD_BYTES].decode("utf-8", "replace")
        start = shorten_to_line(head, _MAX_QUOTED_CHARACTERS, raw.redactor.clean)
        beginning = f"it begins {start!r}" if start else "it is empty"
        error.args = (
            f"the answer is not a JSON object: status 200, {content_type}, {beginning}. {json_error}",
        )
    error.trace_id = raw.trace_id
    return remove_secrets(error, raw.redactor)


@dataclass(frozen=True, slots=True)
class Spoken:
    """An answer with audio (sections 2.3 and 2.5 of the service document). The audio can be read.

    Parameters
    ----------
    audio
        The encoded audio, as the service sent it.
    format, sample_rate_hz, channels, audio_seconds
        Properties from the headers of the audio itself, not of the answer. Raw formats lack a header, so
        their rate and channels are those of the request.
    words
        Each word with its start and end in milliseconds. Empty for the voice changer and for streams.
    billed_characters
        Expected cost of this call in characters, by the rule of `spec.billing`.
    remaining_characters
        Balance of the key after this call, in characters. None if the answer contains no balance.
    warnings
        The answer's ``warning``, its ``X-Speech-Warning`` headers, and findings of the client, such as a
        wrong length, or words whose times run backwards.
    trace_id, region
        The service's id of the answer, and the region that sent it.
    latency_ms, attempts
        Duration of the successful attempt with its download, in milliseconds, and the number of attempts.
    said_seconds
        Length of the audio that the answer states, in seconds. None if the answer states no valid length.
    transcription
        The spoken words of the clip, if the voice changer was requested to return them.
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


def decode_spoken(raw: RawAnswer, audio: bytes | None, request: Any, clip_seconds: float | None) -> Spoken:
    """Return the decoded answer to a call for speech or of the voice changer.

    `audio` is the downloaded audio if the answer contains only a URL, otherwise None. `clip_seconds` is the
    length of the clip for the voice changer, otherwise None. Raises BadAnswer if the answer or its audio is
    unusable, or if a stream lacks the mark of its end.
    """
    if clip_seconds is not None:
        decoded = decode_convert(raw.body, clip_seconds=clip_seconds)
    elif isinstance(request, GenerateRequest):
        decoded = decode_generate(raw.body, characters=len(request.text))
    else:
        decoded = _decode_stream(raw)
    clean, content = raw.redactor.clean, raw.redactor.for_content
    rate_hz = request.sample_rate or get_default_sample_rate_hz(
        getattr(request, "model", None) or Model.FALCON_2
    )
    channel_type, rate_hz = get_forced_shape(request.format, request.channel_type, int(rate_hz))
    audio = decoded.audio if audio is None else audio
    if audio is None:
        raise BadAnswer("the answer names a URL for its audio, which was not fetched")
    found = _inspect_audio(audio, request.format, rate_hz, channel_type.channels, clean)
    notes = [decoded.warning, *decoded.notes]
    if found.format is not request.format:
        notes.append(f"requested {request.format.value}, got {found.format.value}")
    if found.sample_rate_hz != rate_hz:
        notes.append(f"requested {rate_hz} Hz, got {found.sample_rate_hz} Hz")
    if found.channels != channel_type.channels:
        plural = "s" if found.channels > 1 else ""
        notes.append(f"requested {channel_type.value}, got {found.channels} channel{plural}")
    seconds, said_seconds = found.audio_seconds, decoded.audio_seconds
    deviation_s = abs(seconds - said_seconds) if said_seconds is not None else 0.0
    if deviation_s > max(_LENGTH_TOLERANCE_S, _LENGTH_TOLERANCE_SHARE * (said_seconds or 0.0)):
        notes.append(f"the answer states {said_seconds:.2f} s of audio, but contains {seconds:.2f} s")
    words, joined = decoded.words, "\n".join(map(_get_word_text, decoded.words))
    if content.clean(joined) is not joined:
        words = [(content.clean(word), start_ms, end_ms) for word, start_ms, end_ms in words]
    if clip_seconds is None:
        billed = count_billed_characters(request.text)
    else:
        billed = ceil(
            billing.compute_voice_change_millicredits(clip_seconds) / billing.MILLICREDITS_PER_CREDIT
        )
    return Spoken(
        audio=audio,
        format=found.format,
        sample_rate_hz=found.sample_rate_hz,
        channels=found.channels,
        audio_seconds=seconds,
        words=words,
        billed_characters=billed,
        remaining_characters=decoded.remaining_characters,
        warnings=collect_warnings(raw.headers, *notes, clean=clean),
        trace_id=raw.trace_id,
        latency_ms=raw.latency_ms,
        region=raw.region,
        said_seconds=said_seconds,
        transcription=decoded.transcription and content.clean(decoded.transcription),
    )


def _decode_stream(raw: RawAnswer) -> SpokenAnswer:
    """Return the audio of a stream that was read to its end, or raise BadAnswer if the end is unmarked."""
    problem = describe_wrong_content(raw.headers) if has_marked_end(raw.headers) else NO_END_NOTE
    if problem is not None:
        raise BadAnswer(problem)
    audio = raw.body
    # Write the length into the header, because the length was unknown when the stream began.
    with suppress(AudioError):
        audio = write_length(audio)
    return SpokenAnswer(audio)


def _inspect_audio(
    data: bytes, format: Format, rate_hz: int, channels: int, clean: SecretMasker
) -> AudioInfo:
    """Return the properties of audio, or raise BadAnswer with the fault."""
    # For a raw format, also look for a header, because some services wrap raw samples in a file.
    raw: dict[str, Any] = {"format": format, "sample_rate_hz": rate_hz, "channels": channels}
    problem = ""
    for audio_options in (raw, {}) if format in _RAW_FORMATS else ({},):
        try:
            if (info := inspect_audio(data, **audio_options)).audio_seconds:
                return info
            problem = problem or "it contains no samples"
        except AudioError as error:
            problem = problem or str(error)
    # The problem may quote the first bytes, so leave it out if these bytes contain a secret.
    head = data[:_HEAD_BYTES].decode("latin-1")
    raise BadAnswer(f"the audio cannot be read: {problem if clean(head) == head else 'it is text'}")


@dataclass(frozen=True, slots=True)
class Translated:
    """The answer to a translation call (section 2.6).

    Parameters
    ----------
    translations
        One translation for each text, in the order of the request.
    routes
        For each translation, all languages from the source to the target (``en>pt-BR>es``). None if unknown.
    text_warnings
        The service's warnings about each text.
    billed_characters, trace_id, latency_ms, region, attempts
        As in :class:`Spoken`.
    credits_used, target
        Cost and language that the answer states. None if it states none.
    warnings
        Warnings about the whole call, of the service and of the client.

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


def decode_translated(raw: RawAnswer, request: TranslateRequest) -> Translated:
    """Return the decoded answer to a translation call, or raise BadAnswer if a translation is missing."""
    decoded = decode_translate(raw.body, request.texts)
    translations = []
    for position, translation in enumerate(decoded.texts):
        if isinstance(translation, BadAnswer):
            raise BadAnswer(f"text {position}: {translation}")
        translations.append(translation)
    source, target = request.source_language, request.target_language
    routes, of_texts, notes = assign_warnings(collect_warnings(raw.headers), len(request.texts))
    if source is not None:
        # A text without a stated route was translated directly. If the text has a warning, its route is
        # unknown.
        routes = [
            way or (None if text_warnings else f"{source}>{target}")
            for way, text_warnings in zip(routes, of_texts, strict=True)
        ]
    price = billing.convert_to_credits(billing.compute_translation_millicredits(request.texts))
    notes += decoded.notes
    if decoded.credits_used is not None and decoded.credits_used != price:
        cost = format_count(decoded.credits_used, "credit")
        notes.append(f"the service reports a cost of {cost}, expected {price:g}")
    if decoded.target is not None and locales.is_certainly_different(decoded.target, target):
        notes.append(f"the answer states the language {decoded.target}, requested {target}")
    return Translated(
        translations=tuple(translations),
        routes=tuple(routes),
        text_warnings=tuple(map(tuple, of_texts)),
        billed_characters=sum(map(len, request.texts)),
        credits_used=decoded.credits_used,
        warnings=tuple(notes),
        trace_id=raw.trace_id,
        latency_ms=raw.latency_ms,
        region=raw.region,
        target=decoded.target,
    )


def assign_warnings(
    warnings: Sequence[str], count: int
) -> tuple[list[str | None], list[list[str]], list[str]]:
    """Return the route of each text, the warnings about each text, and the warnings about the whole call."""
    routes: dict[int, str] = {}
    of_texts: dict[int, list[str]] = {position: [] for position in range(count)}
    of_all = []
    for warning in warnings:
        found = _WARNING_WITH_TEXTS.fullmatch(warning)
        if way := read_route(warning):
            routes |= dict.fromkeys(way[1], way[0])
        # Other warnings list their texts in the same form, so put this list into a route warning to read it.
        elif found and (found_route := read_route(f"{ROUTE_WARNING_START}-; {found[2]}")):
            for position in of_texts.keys() & found_route[1]:
                of_texts[position].append(found[1])
        else:
            of_all.append(warning)
    return [routes.get(position) for position in range(count)], list(of_texts.values()), of_all
