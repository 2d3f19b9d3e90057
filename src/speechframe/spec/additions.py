"""Answers of the addresses that the document does not have: the limits and the health of the service."""

from typing import ClassVar

from pydantic import ConfigDict, Field

from speechframe.spec.fields._enums import Model
from speechframe.spec.fields._model import SnakeModel

__all__ = ["Health", "Limits"]


class _Addition(SnakeModel):
    """A table of ours. Every field is in every answer, and no other field is."""

    model_config = ConfigDict(extra="forbid")
    section: ClassVar[str] = "addition"


class StreamLimits(_Addition):
    """Limits of streams and sockets."""

    default_model: Model = Field(description="Model of a stream that names none, in this region.")
    max_sockets: int = Field(description="Largest number of open sockets of this key.")
    socket_idle_seconds: float = Field(description="Seconds without traffic after which a socket closes.")
    max_frame_bytes: int = Field(description="Largest frame of a client in bytes.")
    generation_requests_per_second: int = Field(description="Largest rate of new texts on a socket.")


class Pace(_Addition):
    """Number of calls at once, and the speed, for one kind of work."""

    calls_at_once: int = Field(description="Number of calls that the service takes at once.")
    characters_per_second: float = Field(description="Usual speed of all workers together.")


class Pair(_Addition):
    """One direction of translation."""

    source: str
    target: str
    quality: str
    route: str = Field(description="The languages on the way, such as en>pt-BR>es.")


class TranslationPairs(_Addition):
    """The languages that this service translates."""

    sources: list[str]
    targets: list[str]
    pairs: list[Pair]


class DubbingLimits(_Addition):
    """Limits of dubbing."""

    installed: bool = Field(description="Whether this service can dub.")
    at_once: int = Field(description="Number of jobs at once.")
    max_seconds: int = Field(description="Longest media file in seconds.")
    link_seconds: int = Field(description="Lifetime of a download link in seconds.")
    project_job_seconds: int = Field(description="Seconds that a job of a project is kept.")
    characters_per_second: int = Field(description="Largest number of spoken characters for a second.")
    least_text_seconds: int = Field(description="Seconds that count at least for that bound.")
    voices_at_once: int = Field(description="Largest number of voices at the same moment.")
    corrections_per_locale: int = Field(description="Largest number of corrections of a dub.")
    waiting_jobs: int = Field(description="Largest number of waiting jobs of a key.")
    failed_jobs: int = Field(description="Number of failed jobs of a key that are kept.")
    projects: int = Field(description="Largest number of projects of a key.")
    max_credits: bool = Field(description="Whether a job may have a largest price.")
    quota_credits: int | None = Field(description="Credits of a billing cycle; null without a dubbing key.")
    remaining_credits: int | None = Field(description="Credits left; null without a dubbing key.")


class PriceOf(_Addition):
    """The price of one operation."""

    unit: str
    credits: float
    balance: str = Field(description="The balance that pays: speech or dubbing.")


class Choice(_Addition):
    """One point that the document leaves open, and our choice."""

    id: str
    point: str
    choice: str


class Limits(_Addition):
    """Limits of this service, and its choices where the document is open."""

    service: str
    version: str
    identity: str = Field(description="Names and versions of the speech engines.")
    identities: dict[str, str] = Field(description="Names and versions of the engines for each verb.")
    region: str
    concurrency: int = Field(description="Calls in flight of this key, other than streams.")
    pools: dict[str, int] = Field(description="Calls in flight of this key for each pool.")
    stream: StreamLimits
    max_text_characters: int
    max_texts_per_call: int = Field(description="Largest number of texts of a translation call.")
    max_translate_characters: int = Field(description="Largest size of a translation call in characters.")
    max_audio_seconds: float = Field(description="Longest clip of the voice changer in seconds.")
    max_upload_bytes: int
    idempotency: bool = Field(description="Whether a repeat with the same key is free.")
    idempotency_seconds: int = Field(description="Seconds for which a repeat is free.")
    take_header: str
    progress_header: str
    paces: dict[str, Pace] = Field(description="For each speech engine, translation and voice change.")
    source_language: bool = Field(description="Whether a translation call may name the source language.")
    translation: TranslationPairs
    dubbing: DubbingLimits
    quota_characters: int = Field(json_schema_extra={"format": "int64"})
    remaining_characters: int = Field(json_schema_extra={"format": "int64"})
    billing_cycle: str = Field(description="Year and month, such as 2026-03.")
    prices: dict[str, PriceOf]
    chosen: list[Choice]


class Workers(_Addition):
    """Counts of workers and jobs."""

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
