"""Good answers as they came, and what is read in them: audio, words, warnings, translations."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from speechframe.audio.codec import AudioInfo, forced_shape, inspect, with_length
from speechframe.client.masking import Redactor, without_secrets
from speechframe.errors import AudioError, BadAnswer
from speechframe.spec import locales
from speechframe.spec.billing import to_credits, translate_millicredits
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.chosen import ROUTE_WARNING, read_route
from speechframe.spec.limits import default_sample_rate_hz
from speechframe.spec.speech import ChannelType, Format, GenerateRequest, Model, StreamRequest
from speechframe.spec.translate import TranslateRequest
from speechframe.wire.answers import loaded
from speechframe.wire.bodies import Generated
from speechframe.wire.changer import Converted
from speechframe.wire.errors import one_line, trace_id_of, warnings_of
from speechframe.wire.stream import NO_END, tells_its_end, words_instead
from speechframe.wire.translate import decode_translate

__all__ = ["Raw", "Spoken", "Translated"]

Asked = GenerateRequest | StreamRequest | ConvertRequest
"""What audio may be asked for with."""

_HEAD_BYTES = 4096
_SHOWN_CHARACTERS = 80
_RAW = frozenset({Format.PCM, Format.ALAW, Format.ULAW})
_LENGTH_TOLERANCE_S = 0.25
_LENGTH_TOLERANCE = 0.02
_PLACES = re.compile(r"(.+): (texts [0-9,-]+)")


@dataclass(frozen=True, slots=True)
class Raw:
    """A good answer as it came, not read yet; :meth:`Call.decode` reads it.

    Parameters
    ----------
    body, headers
        Of the answer; the body is unpacked.
    trace_id
        The service's id of the answer.
    latency_ms
        Time of the attempt.
    region
        The region that answered.
    redactor
        Masks keys in what is shown of the answer.
    drop
        Closes the connection that the answer came on, from any thread: on a connection with an answer too
        many, each call would get the answer of the call before.
    """

    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    trace_id: str | None
    latency_ms: float
    region: str
    redactor: Redactor = field(default_factory=Redactor, repr=False, compare=False)
    drop: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)

    def warnings(self, *further: str | None) -> tuple[str, ...]:
        """Return `further` and the answer's warning headers, each once."""
        return warnings_of(self.headers, *further, clean=self.redactor.clean)

    def facts(self) -> dict[str, Any]:
        """Return what every answer says of its attempt."""
        return {"trace_id": self.trace_id, "latency_ms": self.latency_ms, "region": self.region}


def refuse_no_json(status: int, body: bytes, headers: Mapping[str, str], redactor: Redactor) -> None:
    """Raise BadAnswer for a body that does not even begin like a JSON object, such as a page of HTML."""
    if body[:1] != b"{" and not body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        raise BadAnswer(
            _no_json(status, body, headers, redactor), trace_id=trace_id_of(headers, redactor.clean)
        )


def explained(error: BadAnswer, raw: Raw, *, is_json: bool) -> BadAnswer:
    """Return the error of an answer that cannot be used, without secrets and with the answer's trace id."""
    raw.drop()
    if is_json:
        try:
            loaded(raw.body)
        except BadAnswer as no_json:
            words = _no_json(200, raw.body, raw.headers, raw.redactor)
            balance = error.remaining_characters or no_json.remaining_characters
            error = type(error)(f"{words}. {no_json}", remaining_characters=balance)
    error.trace_id = raw.trace_id
    return without_secrets(error, raw.redactor)


def _no_json(status: int, body: bytes, headers: Mapping[str, str], redactor: Redactor) -> str:
    kind = one_line(headers.get("Content-Type", "") or "no content type", _SHOWN_CHARACTERS, redactor.clean)
    start = one_line(body[:_HEAD_BYTES].decode("utf-8", "replace"), _SHOWN_CHARACTERS, redactor.clean)
    said = f"it begins {start!r}" if start else "it is empty"
    return f"the answer is no JSON object: status {status}, {kind}, {said}"


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
    billed_characters
        Characters this call should have cost, by the rule of `spec.billing`.
    remaining_characters
        The balance after the call; None when the service did not say.
    warnings
        The answer's ``warning``, its ``X-Speech-Warning`` headers, and what the client noticed itself
        (such as words that run backwards, or a length that is not the audio's).
    trace_id
        The service's id of the answer.
    latency_ms
        Time of the successful attempt, download included.
    region
        The region that answered.
    attempts
        How many attempts it took.
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


def spoken_of(
    raw: Raw,
    audio: bytes | None,
    request: Asked,
    decode: Callable[[bytes], Generated | Converted],
    billed_characters: int,
) -> Spoken:
    """Return what an answer with audio holds.

    Parameters
    ----------
    raw
        The answer.
    audio
        What was behind the answer's URL; None where the audio is in the answer.
    request
        What was asked for.
    decode
        Reads the body.
    billed_characters
        See :class:`Spoken`.

    Raises
    ------
    BadAnswer
        The answer holds no audio that can be read.
    """
    said = decode(raw.body)
    try:
        audio = said.audio if audio is None else audio
        if audio is None:
            raise BadAnswer("the answer names a URL for its audio, which was not fetched")  # noqa: TRY301 - as below
        info, differences = inspected(audio, request, said.audio_seconds, raw.redactor)
    except BadAnswer as error:
        error.remaining_characters = said.remaining_characters
        raise
    content = raw.redactor.for_content()
    transcription = said.transcription if isinstance(said, Converted) else None
    return Spoken(
        audio=audio,
        format=info.format,
        sample_rate_hz=info.sample_rate_hz,
        channels=info.channels,
        audio_seconds=info.audio_seconds,
        words=content.clean_words(said.words) if isinstance(said, Generated) else [],
        billed_characters=billed_characters,
        remaining_characters=said.remaining_characters,
        warnings=raw.warnings(said.warning, *said.notes, *differences),
        said_seconds=said.audio_seconds,
        transcription=None if transcription is None else content.clean(transcription),
        **raw.facts(),
    )


def streamed_of(raw: Raw, request: StreamRequest, billed_characters: int) -> Spoken:
    """Return a stream that was read to its end as one answer.

    The header of a stream cannot know how long it will be; here that is known, and WAV and FLAC are given it.

    Raises
    ------
    BadAnswer
        The answer is no audio, or nothing in it says that it is all there.
    """
    if not tells_its_end(raw.headers):
        raise BadAnswer(NO_END)
    if (words := words_instead(raw.headers, raw.redactor.clean)) is not None:
        raise BadAnswer(words)
    audio = raw.body
    with suppress(AudioError):  # raw samples, or nothing that is read here: that is found out below
        audio = with_length(audio)
    info, differences = inspected(audio, request, None, raw.redactor)
    return Spoken(
        audio=audio,
        format=info.format,
        sample_rate_hz=info.sample_rate_hz,
        channels=info.channels,
        audio_seconds=info.audio_seconds,
        words=[],
        billed_characters=billed_characters,
        remaining_characters=None,
        warnings=raw.warnings(*differences),
        **raw.facts(),
    )


def inspected(
    data: bytes, request: Asked, said_seconds: float | None, redactor: Redactor
) -> tuple[AudioInfo, list[str]]:
    """Return what audio is, and in words where that differs from the request or from the answer's claim.

    Raises
    ------
    BadAnswer
        The bytes are no audio, or audio without a single sample.
    """
    try:
        info = _looked_at_raw(data, request) if request.format in _RAW else inspect(data)
    except AudioError as error:
        # Its words show how the bytes begin.
        head = data[:_HEAD_BYTES].decode("latin-1")
        problem = str(error) if redactor.clean(head) == head else "it is text"
    else:
        if info.audio_seconds > 0:
            return info, _differences(info, request, said_seconds)
        problem = "it holds no samples"
    raise BadAnswer(f"the audio cannot be read: {problem}")


def _looked_at_raw(data: bytes, request: Asked) -> AudioInfo:
    channels, rate_hz = _asked_shape(request)
    try:
        return inspect(data, format=request.format, sample_rate_hz=rate_hz, channels=channels)
    except AudioError as error:
        refused = error
    try:
        # Some services wrap raw samples in a file with a header.
        return inspect(data)
    except AudioError:
        raise refused from None


def _asked_shape(request: Asked) -> tuple[int, int]:
    rate_hz = request.sample_rate
    if rate_hz is None:
        rate_hz = default_sample_rate_hz(getattr(request, "model", None) or Model.FALCON_2)
    return _shape(request.format, request.channel_type, int(rate_hz))


@lru_cache(256)
def _shape(format: Format, channel_type: ChannelType, rate_hz: int) -> tuple[int, int]:
    channel_type, rate_hz = forced_shape(format, channel_type, rate_hz)
    return channel_type.channels, rate_hz


def _differences(info: AudioInfo, request: Asked, said_seconds: float | None) -> list[str]:
    channels, rate_hz = _asked_shape(request)
    found = []
    if info.format is not request.format:
        found.append(f"asked for {request.format.value}, got {info.format.value}")
    if info.sample_rate_hz != rate_hz:
        found.append(f"asked for {rate_hz} Hz, got {info.sample_rate_hz} Hz")
    if info.channels != channels:
        asked = forced_shape(request.format, request.channel_type)[0]
        found.append(
            f"asked for {asked.value}, got {info.channels} channel{'s' if info.channels > 1 else ''}"
        )
    if said_seconds is not None:
        off_s = abs(info.audio_seconds - said_seconds)
        if off_s > _LENGTH_TOLERANCE_S and off_s > _LENGTH_TOLERANCE * said_seconds:
            found.append(
                f"the answer says {said_seconds:.2f} s of audio, it holds {info.audio_seconds:.2f} s"
            )
    return found


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
    billed_characters
        Characters this call should have cost, by the rule of `spec.billing`.
    credits_used
        What the answer says it cost; None when it does not.
    warnings
        What concerns the call as a whole: of the service, and what the client noticed itself.
    trace_id
        The service's id of the answer.
    latency_ms
        Time of the successful attempt.
    region
        The region that answered.
    attempts
        How many attempts it took.
    target
        The language that the answer says it is in; None when it does not.

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
    """Return what the answer to a translation call holds, with every warning at the text it is about.

    Raises
    ------
    BadAnswer
        The answer is not one translation for each text, in their order.
    """
    said = decode_translate(raw.body, request.texts)
    content = raw.redactor.for_content()
    source, target = request.source_language, request.target_language
    said_target = None if said.target is None else raw.redactor.clean(said.target)
    routes, of_texts, of_all = placed_warnings(raw.warnings(), len(request.texts))
    if source is not None:
        # Of a text that the service has something else to say, no route is known.
        routes = [
            way or (None if told else f"{source}>{target}")
            for way, told in zip(routes, of_texts, strict=True)
        ]
    price = to_credits(translate_millicredits(request.texts))
    notes = list(said.notes)
    if said.credits_used is not None and said.credits_used != price:
        notes.append(f"the service says the call cost {said.credits_used:g} credits, not {price:g}")
    if said_target is not None and locales.is_another(said_target, target):
        notes.append(f"the answer says it is in {said_target}, not in {target}")
    return Translated(
        translations=tuple(map(content.clean, said.texts)),
        routes=tuple(routes),
        text_warnings=tuple(map(tuple, of_texts)),
        billed_characters=sum(map(len, request.texts)),
        credits_used=said.credits_used,
        warnings=(*of_all, *notes),
        target=said_target,
        **raw.facts(),
    )


def placed_warnings(
    warnings: Sequence[str], count: int
) -> tuple[list[str | None], list[list[str]], list[str]]:
    """Return the route of each text, the warnings of each text, and those of the call as a whole."""
    routes: list[str | None] = [None] * count
    of_texts: list[list[str]] = [[] for _ in range(count)]
    of_all = []
    for warning in warnings:
        if (way := read_route(warning)) is not None:
            for place in way[1]:
                if place < count:
                    routes[place] = way[0]
        elif (found := _PLACES.fullmatch(warning)) and (way := read_route(f"{ROUTE_WARNING}-; {found[2]}")):
            # The places of any other warning are written as those of a route.
            for place in way[1]:
                if place < count:
                    of_texts[place].append(found[1])
        else:
            of_all.append(warning)
    return routes, of_texts, of_all
