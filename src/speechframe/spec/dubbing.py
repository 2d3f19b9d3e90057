"""Models of the locales, jobs and projects of dubbing (sections 2.8 to 2.11 and 4.5 of the document)."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from speechframe.spec.billing import MAX_BUDGET_CREDITS
from speechframe.spec.changer import SourceForm
from speechframe.spec.chosen import (
    DEFAULT_PAGE_PROJECTS,
    MAX_CAST_SPEAKERS,
    MAX_CORRECTIONS_PER_CALL,
    MAX_PROJECT_DESCRIPTION_CHARACTERS,
    MAX_PROJECT_NAME_CHARACTERS,
    MAX_TARGET_LOCALES,
    ORIGINAL_GAIN_DB_RANGE,
    PAGE_PROJECTS_RANGE,
)
from speechframe.spec.fields._model import (
    Int64,
    JsonText,
    Name,
    NotBoolean,
    OpenWord,
    PlainText,
    ReportedCredits,
    SnakeModel,
    Text,
    refuse,
)
from speechframe.spec.locales import convert_to_dubbing_spelling

MEDIA_TYPES: Mapping[str, str] = MappingProxyType(
    {
        ".mp4": "video/mp4",
        ".mkv": "video/x-matroska",
        ".mov": "video/quicktime",
        ".webm": "video/webm",
        ".mp3": "audio/mpeg",
        ".wav": "audio/wav",
        ".flac": "audio/flac",
        ".m4a": "audio/mp4",
    }
)
"""Media types by file extension, for the media files that can be dubbed."""


class DubbingType(StrEnum):
    """Kinds of dub (section 2.8). A job of kind QA waits for a review of its first version."""

    AUTOMATED = "AUTOMATED"
    QA = "QA"


class Priority(StrEnum):
    """Priority of a job (section 2.9)."""

    LOW = "LOW"
    NORMAL = "NORMAL"
    HIGH = "HIGH"


class JobStatusValue(StrEnum):
    """States of a job and of its files. The document leaves the words open (chosen: job-status)."""

    QUEUED = "QUEUED"
    IN_PROGRESS = "IN_PROGRESS"
    IN_REVIEW = "IN_REVIEW"
    COMPLETED = "COMPLETED"
    PARTIALLY_COMPLETED = "PARTIALLY_COMPLETED"
    FAILED = "FAILED"


_FINAL_STATUSES = frozenset(
    {JobStatusValue.COMPLETED, JobStatusValue.PARTIALLY_COMPLETED, JobStatusValue.FAILED}
)


def is_terminal(status: str) -> bool:
    """Return whether a job's status is final. An unknown status is not final, so polling continues.

    Examples
    --------
    >>> is_terminal("PARTIALLY_COMPLETED"), is_terminal("REVIEWING")
    (True, False)
    """
    return status in _FINAL_STATUSES


def is_ready(status: str) -> bool:
    """Return whether a job has ended or waits for a review.

    Examples
    --------
    >>> is_ready("IN_REVIEW"), is_ready("QUEUED")
    (True, False)
    """
    return is_terminal(status) or status == JobStatusValue.IN_REVIEW


class FailureCode(StrEnum):
    """Reasons of a failed job. The document leaves the words open (chosen: failure-code)."""

    INSUFFICIENT_CREDITS = "INSUFFICIENT_CREDITS"
    CREDITS_EXHAUSTED = "CREDITS_EXHAUSTED"
    LANGUAGE_NOT_SUPPORTED = "LANGUAGE_NOT_SUPPORTED"
    SPEECH_NOT_PRESENT = "SPEECH_NOT_PRESENT"
    SOURCE_LANGUAGE_MISMATCH = "SOURCE_LANGUAGE_MISMATCH"
    WEBHOOK_ERROR = "WEBHOOK_ERROR"
    SERVER_ERROR = "SERVER_ERROR"


def _split_locales(value: Any) -> Any:
    # A repeated form field is a list here, and a single field is a string. Commas also separate locales.
    items = [value] if isinstance(value, str) else value
    if isinstance(items, list) and all(isinstance(item, str) for item in items):
        return [part.strip() for item in items for part in item.split(",") if part.strip()]
    return items


def _check_web_address(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or parts.username is not None or len(value) > _MAX_ADDRESS_CHARACTERS:
        refuse("is not an address that can be called", "an http or https address without a user name")
    return value


_MAX_ADDRESS_CHARACTERS = 8192
"""Largest length of a webhook address in characters. Common servers accept about as much."""
_SUBTITLES_EXTRA: dict[str, Any] = {"addition": True, "chosen_point": "dub-subtitles"}
_PROGRESS_EXTRA: dict[str, Any] = {"addition": True, "chosen_point": "dub-progress"}
_SCRIPT_EXTRA: dict[str, Any] = {"addition": True, "chosen_point": "dub-script"}
_MAX_CREDITS_EXTRA: dict[str, Any] = {"addition": True, "chosen_point": "dub-max-credits"}

RequiredText = Annotated[str, Field(min_length=1, strict=True), PlainText]
Locale = Annotated[str, AfterValidator(convert_to_dubbing_spelling)]
OriginalGainDb = Annotated[
    float, Field(ge=ORIGINAL_GAIN_DB_RANGE.low, le=ORIGINAL_GAIN_DB_RANGE.high), NotBoolean
]
NonNegativeCount = Annotated[int, Field(ge=0, le=2**31 - 1), NotBoolean]
NonNegativeNumber = Annotated[float, Field(ge=0, le=1000), NotBoolean]
TargetLocales = Annotated[
    list[Locale], BeforeValidator(_split_locales), Field(min_length=1, max_length=MAX_TARGET_LOCALES)
]
ProjectName = Annotated[
    str, Field(min_length=1, max_length=MAX_PROJECT_NAME_CHARACTERS, strict=True), PlainText
]
Description = Annotated[str, Field(max_length=MAX_PROJECT_DESCRIPTION_CHARACTERS, strict=True), PlainText]
VoiceCast = Annotated[dict[Name, Name], Field(max_length=MAX_CAST_SPEAKERS), JsonText]


class DestinationLocale(SnakeModel):
    """A target locale of dubbing, with the kinds of dub for it (section 2.8)."""

    section: ClassVar[str] = "2.8"

    locale: str
    language: str
    supports: list[OpenWord[DubbingType]]


class SourceLocale(SnakeModel):
    """A source locale of dubbing (section 2.8)."""

    section: ClassVar[str] = "2.8"

    locale: str
    language: str


class DubJob(SnakeModel):
    """The answer to a request that creates a job (section 2.9)."""

    section: ClassVar[str] = "2.9"

    job_id: str
    dubbing_type: OpenWord[DubbingType]
    file_name: str = Field(description="Name of the uploaded file.")
    priority: OpenWord[Priority]
    target_locales: list[str]
    file_url: str | None = None
    webhook_url: str | None = None
    source_locale: str | None = None
    warning: str | None = None


class DownloadDetail(SnakeModel):
    """State and files of a job in one locale (section 2.10)."""

    section: ClassVar[str] = "2.10"

    locale: str | None = None
    status: str | None = None
    error_message: str | None = None
    download_url: str | None = None
    download_srt_url: str | None = None
    download_vtt_url: str | None = Field(
        None, description="URL of the subtitles as WebVTT.", json_schema_extra=_SUBTITLES_EXTRA
    )
    step: str | None = Field(
        None, description="Step of the work that is running.", json_schema_extra=_PROGRESS_EXTRA
    )


class DubJobStatus(SnakeModel):
    """The status of a job (section 2.10). :func:`is_terminal` returns whether the status is final."""

    section: ClassVar[str] = "2.10"

    job_id: str
    status: str
    project_id: str | None = None
    download_details: list[DownloadDetail] | None = None
    credits_used: ReportedCredits | None = None
    credits_remaining: Int64 | None = None
    failure_reason: str | None = None
    failure_code: str | None = None


class Project(SnakeModel):
    """A dubbing project (section 2.11)."""

    section: ClassVar[str] = "2.11"

    project_id: str
    dubbing_type: OpenWord[DubbingType]
    target_locales: list[str]
    name: str | None = None
    description: str | None = None
    source_locale: str | None = None


class ProjectPage(SnakeModel):
    """A page of the project list (section 2.11). A request for the next page contains `next`."""

    section: ClassVar[str] = "2.11"

    projects: list[Project]
    next: str | None = None


class _JobForm(SourceForm):
    """Common fields of the two forms that create a job."""

    file: bytes | None = Field(None, description="Media file.")
    file_url: Text | None = Field(None, description="URL of the media file.")
    webhook_url: Annotated[Text, AfterValidator(_check_web_address)] | None = Field(
        None, description="Address that receives a webhook when the job ends."
    )
    file_name: Text | None = Field(None, description="Name of the media file.")
    priority: Priority = Field(
        Priority.NORMAL, description="Priority in the queue.", json_schema_extra={"chosen": ["default"]}
    )
    webhook_secret: Text | None = Field(None, repr=False, description="Secret that signs the webhook.")
    script: Text | None = Field(
        None,
        description="SRT or WebVTT with speakers, texts and times. It replaces speech recognition.",
        json_schema_extra=_SCRIPT_EXTRA,
    )
    script_locale: Locale | None = Field(
        None,
        description="Locale of the script; by default that of the media file.",
        json_schema_extra=_SCRIPT_EXTRA,
    )
    cast: VoiceCast | None = Field(
        None, description="Voice id of each speaker, as JSON text.", json_schema_extra=_SCRIPT_EXTRA
    )
    original_gain_db: OriginalGainDb = Field(
        ORIGINAL_GAIN_DB_RANGE.default or 0.0,
        description="Level of the original audio under the dub, in dB.",
        json_schema_extra=_SCRIPT_EXTRA,
    )
    max_credits: Annotated[float, Field(ge=0, le=MAX_BUDGET_CREDITS), NotBoolean] | None = Field(
        None,
        description="Highest price in credits. A more expensive job is refused.",
        json_schema_extra=_MAX_CREDITS_EXTRA,
    )


class JobCreateRequest(_JobForm):
    """The form of POST /v1/dub/jobs/create (section 4.5)."""

    section: ClassVar[str] = "4.5"

    target_locales: TargetLocales = Field(description="Locales to dub into, in either spelling.")
    source_locale: Locale | None = Field(None, description="Locale of the media file.")


class JobCreateWithProjectRequest(_JobForm):
    """The form of POST /v1/dub/jobs/create-with-project-id (section 4.5)."""

    section: ClassVar[str] = "4.5"

    project_id: RequiredText = Field(description="Project with the locales of the job.")


class ProjectCreateRequest(SnakeModel):
    """The body of POST /v1/dub/projects/create (section 4.5)."""

    section: ClassVar[str] = "4.5"

    name: ProjectName = Field(description="Name of the project.")
    dubbing_type: DubbingType = Field(description="Kind of the dubs of the project.")
    target_locales: TargetLocales = Field(description="Locales to dub into, in either spelling.")
    source_locale: Locale | None = Field(None, description="Locale of the media files.")
    description: Description | None = Field(None, description="Free text about the project.")


class ProjectUpdateRequest(SnakeModel):
    """The body of PUT /v1/dub/projects/{project_id}/update (section 4.5)."""

    section: ClassVar[str] = "4.5"

    target_locales: TargetLocales = Field(description="Locales of later jobs of the project.")


class ProjectListQuery(SnakeModel):
    """The query of GET /v1/dub/projects/list (section 4.5)."""

    section: ClassVar[str] = "4.5"

    limit: Annotated[int, Field(ge=PAGE_PROJECTS_RANGE.low, le=PAGE_PROJECTS_RANGE.high), NotBoolean] = Field(
        DEFAULT_PAGE_PROJECTS,
        description="Largest number of projects on a page.",
        json_schema_extra={"chosen": ["default", "minimum", "maximum"]},
    )
    next: Text | None = Field(None, description="Value of `next` in the previous page.")


class Fit(StrEnum):
    """How an utterance was fitted into the time of the original (our addition; chosen: dub-review)."""

    FITS = "FITS"
    SLOWER = "SLOWER"
    FASTER = "FASTER"
    MOVED = "MOVED"
    OVERRUN = "OVERRUN"


class DubbedUtterance(SnakeModel):
    """A sentence of one speaker in a dub (our addition; chosen: dub-review)."""

    section: ClassVar[str] = "addition"

    utterance_id: NonNegativeCount = Field(description="Number from 1, in the order of the starts.")
    start_ms: NonNegativeCount = Field(description="Start of the original sentence.")
    end_ms: NonNegativeCount = Field(description="End of the original sentence.")
    speaker: str
    source_text: str
    text: str = Field(description="Spoken text in the target locale.")
    voice_id: str
    dub_start_ms: NonNegativeCount
    dub_end_ms: NonNegativeCount
    speed: NonNegativeNumber = Field(
        description="Speed of the speech, relative to the normal speed 1 of the voice."
    )
    fit: OpenWord[Fit]


class DubUtterances(SnakeModel):
    """All utterances of a dub into one locale (our addition; chosen: dub-review)."""

    section: ClassVar[str] = "addition"

    job_id: str
    locale: str
    version: NonNegativeCount = Field(
        description="Number of the version. It begins at 1 and grows by 1 with each correction."
    )
    overlap: NonNegativeNumber = Field(
        description="Time with speech in both original and dub, divided by the time with speech in either."
    )
    cues_over: NonNegativeCount = Field(
        description="Number of cues that miss the targets of reading speed or duration."
    )
    warnings: list[str] = Field(description="Values that were replaced or left out.")
    utterances: list[DubbedUtterance]


class UtterancesQuery(SnakeModel):
    """The query of GET /v1/dub/jobs/{job_id}/utterances (our addition; chosen: dub-review)."""

    section: ClassVar[str] = "addition"

    locale: Locale = Field(description="One of the job's target locales.")


class UtteranceCorrection(SnakeModel):
    """A new text or voice of an utterance. An absent field stays unchanged."""

    section: ClassVar[str] = "addition"

    utterance_id: int
    text: RequiredText | None = None
    voice_id: Annotated[Name, Field(min_length=1)] | None = None


class UtterancesUpdateRequest(SnakeModel):
    """The body of PUT /v1/dub/jobs/{job_id}/utterances (our addition; chosen: dub-review)."""

    section: ClassVar[str] = "addition"

    locale: Locale = Field(description="One of the job's target locales.")
    utterances: Annotated[list[UtteranceCorrection], Field(min_length=1, max_length=MAX_CORRECTIONS_PER_CALL)]
