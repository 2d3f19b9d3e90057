"""Answers of our own addresses for the limits and the health of the service."""

from typing import Any, ClassVar

from pydantic import ConfigDict, Field

from speechframe.spec import chosen
from speechframe.spec.billing import PRICES
from speechframe.spec.fields._enums import Model
from speechframe.spec.fields._model import SnakeModel


def _drop_defaults(schema: dict[str, Any]) -> None:
    # An answer always has all fields, so a default would mislead its readers.
    for field in schema["properties"].values():
        field.pop("default", None)


class _Addition(SnakeModel):
    """Base class of answers that are not in the document. An answer has exactly the fields of its class.

    A field with a default has the same value in each answer.
    """

    model_config = ConfigDict(
        extra="forbid",
        from_attributes=True,
        json_schema_serialization_defaults_required=True,
        json_schema_extra=_drop_defaults,
    )
    section: ClassVar[str] = "addition"


class StreamLimits(_Addition):
    """Limits of streams and sockets."""

    default_model: Model = Field(description="Model of a stream that names none, in this region.")
    max_sockets: int = Field(description="Largest number of open sockets of this key.")
    socket_idle_seconds: float = Field(description="Seconds without traffic after which a socket closes.")
    max_frame_bytes: int = Field(chosen.MAX_FRAME_BYTES, description="Largest frame of a client in bytes.")
    generation_requests_per_second: int = Field(
        chosen.MAX_GENERATION_REQUESTS_PER_S, description="Largest rate of new texts on a socket."
    )


class Pace(_Addition):
    """Concurrent calls and speed of one kind of work, such as a speech engine or translation."""

    calls_at_once: int = Field(description="Number of calls that the service processes at the same time.")
    characters_per_second: float = Field(
        description="Usual total speed of all workers, in characters per second."
    )


class Pair(_Addition):
    """A source and a target language of translation."""

    source: str
    target: str
    quality: str
    route: str = Field(description="Languages of the translation in order, such as en>pt-BR>es.")


class TranslationPairs(_Addition):
    """Languages that this service translates."""

    sources: list[str]
    targets: list[str]
    pairs: list[Pair]


class DubbingLimits(_Addition):
    """Limits of dubbing."""

    installed: bool = Field(description="Whether this service can dub.")
    at_once: int = Field(description="Number of jobs that are processed at the same time.")
    max_seconds: int = Field(chosen.MAX_DUB_SECONDS, description="Longest media file in seconds.")
    link_seconds: int = Field(
        chosen.DUB_LINK_LIFETIME_SECONDS, description="Lifetime of a download link in seconds."
    )
    project_job_seconds: int = Field(
        chosen.PROJECT_JOB_LIFETIME_SECONDS, description="Seconds that an ended job of a project is kept."
    )
    characters_per_second: int = Field(
        chosen.MAX_DUB_CHARACTERS_PER_SECOND,
        description="Largest number of characters of text for each second of media.",
    )
    least_text_seconds: int = Field(
        chosen.MIN_DUB_TEXT_SECONDS,
        description="A shorter media file counts as this many seconds in the limit of its text.",
    )
    voices_at_once: int = Field(
        chosen.MAX_DUB_VOICES_AT_ONCE,
        description="Limit of the total length of all cues, as a multiple of the length of the media.",
    )
    corrections_per_locale: int = Field(
        chosen.MAX_CORRECTIONS_PER_LOCALE,
        description="Largest number of corrections of a job for each target locale.",
    )
    waiting_jobs: int = Field(
        chosen.MAX_UNFINISHED_DUB_JOBS, description="Largest number of waiting or running jobs of a key."
    )
    failed_jobs: int = Field(
        chosen.MAX_KEPT_FAILED_DUB_JOBS, description="Number of failed jobs of a key that are kept."
    )
    projects: int = Field(chosen.MAX_DUB_PROJECTS, description="Largest number of projects of a key.")
    max_credits: bool = Field(
        True, description="Whether a job may contain max_credits, the highest price to accept."
    )
    quota_credits: int | None = Field(description="Credits of a billing cycle; null without a dubbing key.")
    remaining_credits: int | None = Field(description="Credits left; null without a dubbing key.")


class PriceOf(_Addition):
    """The price of one operation."""

    unit: str
    credits: float
    balance: str = Field(description="Balance that is charged: speech or dubbing.")


class Choice(_Addition):
    """One point that the document leaves open, and our choice."""

    id: str
    point: str
    choice: str


class Limits(_Addition):
    """Limits of this service, and its choices for the points that the document leaves open."""

    service: str = "speechframe"
    version: str
    identity: str = Field(description="Names and versions of the speech engines.")
    identities: dict[str, str] = Field(description="Names and versions of the engines for each verb.")
    region: str
    concurrency: int = Field(description="Largest number of concurrent calls of this key, without streams.")
    pools: dict[str, int] = Field(description="Largest number of concurrent calls of this key for each pool.")
    stream: StreamLimits
    max_text_characters: int = chosen.MAX_TEXT_CHARACTERS
    max_texts_per_call: int = Field(
        chosen.MAX_TEXTS_PER_CALL, description="Largest number of texts of a translation call."
    )
    max_translate_characters: int = Field(
        chosen.MAX_TRANSLATE_CHARACTERS,
        description="Largest number of characters of all texts of a translation call.",
    )
    max_audio_seconds: float = Field(description="Longest clip of the voice changer in seconds.")
    max_upload_bytes: int
    idempotency: bool = Field(
        True, description="Whether a repeated call with the same idempotency key is free."
    )
    idempotency_seconds: int = Field(
        chosen.IDEMPOTENCY_SECONDS, description="Seconds during which a repeated call is free."
    )
    take_header: str = chosen.TAKE_HEADER
    progress_header: str = chosen.PROGRESS_HEADER
    paces: dict[str, Pace] = Field(
        description="Pace of each speech engine, of translation and of voice change."
    )
    source_language: bool = Field(
        True, description="Whether a translation call may name the source language."
    )
    translation: TranslationPairs
    dubbing: DubbingLimits
    quota_characters: int = Field(json_schema_extra={"format": "int64"})
    remaining_characters: int = Field(json_schema_extra={"format": "int64"})
    billing_cycle: str = Field(description="Year and month, such as 2026-03.")
    prices: dict[str, PriceOf] = Field(PRICES, validate_default=True)
    chosen: list[Choice] = Field(chosen.OPEN_POINTS, validate_default=True)


class Workers(_Addition):
    """Numbers of workers and jobs of the service at this moment."""

    count: int
    alive: int
    busy: int
    waiting: int
    replaced: int


class Health(_Addition):
    """The health of the service."""

    status: str
    version: str
    workers: Workers
