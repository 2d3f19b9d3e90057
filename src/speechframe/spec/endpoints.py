"""Every address of the service (sections 4, 5 and 7.2 of the document)."""

from dataclasses import dataclass
from enum import StrEnum

from speechframe.spec.additions import Health, Limits
from speechframe.spec.auth import AuthToken
from speechframe.spec.changer import ConvertRequest, ConvertResponse
from speechframe.spec.codes import SPEECH_STATUSES
from speechframe.spec.dubbing import (
    DestinationLocale,
    DubJob,
    DubJobStatus,
    DubUtterances,
    JobCreateRequest,
    JobCreateWithProjectRequest,
    Project,
    ProjectCreateRequest,
    ProjectListQuery,
    ProjectPage,
    ProjectUpdateRequest,
    SourceLocale,
    UtterancesQuery,
    UtterancesUpdateRequest,
)
from speechframe.spec.fields._model import DocumentModel
from speechframe.spec.socket import SocketQuery
from speechframe.spec.speech import GenerateRequest, GenerateResponse, StreamRequest, Voice, VoicesQuery
from speechframe.spec.translate import TranslateRequest, TranslateResponse

JSON = "application/json"
FORM = "multipart/form-data"


class Auth(StrEnum):
    """How a call shows who is calling (section 5)."""

    KEY = "api-key header"
    """The schema calls the header optional; without it, or with a bad one, the answer is 403."""
    KEY_OR_TOKEN = "api-key or token header"  # noqa: S105  (the name of a way, no secret)
    """The voice listing; 403 as above."""
    KEY_FOR_TOKEN = "api-key header, 400 without it, 401 for a bad one"  # noqa: S105  (as above)
    """The token call."""
    DUBBING_KEY = "api-key header with the dubbing key"
    """Required; 403 for a bad one."""
    KEY_IN_UPGRADE = "api-key query parameter or header"
    """The WebSocket: the upgrade succeeds, then close code 1008."""
    NONE = "none"
    """Open to everyone on the machine (our additions only)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of the service.

    `statuses` holds what section 7.2 lists, for generate and stream together with section 7.1. `answers_list`
    is true where the answer is a JSON array of `response_model`. `addition` marks addresses that are ours.
    """

    name: str
    method: str
    path: str
    chapter: str
    section: str
    request_model: type[DocumentModel] | None
    response_model: type[DocumentModel] | None
    statuses: tuple[int, ...]
    auth: Auth
    content_type: str | None = None
    query_model: type[DocumentModel] | None = None
    answers_list: bool = False
    summary: str = ""
    addition: bool = False

    @property
    def path_fields(self) -> tuple[str, ...]:
        """Names in braces inside the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))


_PAID = (200, 400, 402, 403, 500, 503)
_SPEECH = tuple(sorted({*_PAID, *map(int, SPEECH_STATUSES)}))
_FREE = (200, 400, 403, 500, 503)
_TOKEN = (200, 400, 401, 503)

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "stream",
        "POST",
        "/v1/speech/stream",
        "streaming",
        "4.1",
        StreamRequest,
        None,
        _SPEECH,
        Auth.KEY,
        JSON,
        summary="Speak a text as a stream of audio",
    ),
    Endpoint(
        "generate",
        "POST",
        "/v1/speech/generate",
        "generate",
        "4.1",
        GenerateRequest,
        GenerateResponse,
        _SPEECH,
        Auth.KEY,
        JSON,
        summary="Speak a text",
    ),
    Endpoint(
        "voices",
        "GET",
        "/v1/speech/voices",
        "voices",
        "4.1",
        None,
        Voice,
        _FREE,
        Auth.KEY_OR_TOKEN,
        query_model=VoicesQuery,
        answers_list=True,
        summary="List the voices of a model",
    ),
    Endpoint(
        "stream_input",
        "WebSocket",
        "/v1/speech/stream-input",
        "streaming",
        "4.1",
        None,
        None,
        (),
        Auth.KEY_IN_UPGRADE,
        query_model=SocketQuery,
        summary="Speak text frames, context by context",
    ),
    Endpoint(
        "convert",
        "POST",
        "/v1/voice-changer/convert",
        "changer",
        "4.2",
        ConvertRequest,
        ConvertResponse,
        _PAID,
        Auth.KEY,
        FORM,
        summary="Speak a clip in another voice",
    ),
    Endpoint(
        "translate",
        "POST",
        "/v1/text/translate",
        "translate",
        "4.3",
        TranslateRequest,
        TranslateResponse,
        _PAID,
        Auth.KEY,
        JSON,
        summary="Translate texts into one language",
    ),
    Endpoint(
        "token",
        "GET",
        "/v1/auth/token",
        "auth",
        "4.4",
        None,
        AuthToken,
        _TOKEN,
        Auth.KEY_FOR_TOKEN,
        summary="Get a short-lived token",
    ),
    Endpoint(
        "list_destination_languages",
        "GET",
        "/v1/dub/list-destination-languages",
        "dubbing",
        "4.5",
        None,
        DestinationLocale,
        _FREE,
        Auth.DUBBING_KEY,
        answers_list=True,
        summary="List the locales that can be dubbed into",
    ),
    Endpoint(
        "list_source_languages",
        "GET",
        "/v1/dub/list-source-languages",
        "dubbing",
        "4.5",
        None,
        SourceLocale,
        _FREE,
        Auth.DUBBING_KEY,
        answers_list=True,
        summary="List the locales that can be dubbed from",
    ),
    Endpoint(
        "create_job",
        "POST",
        "/v1/dub/jobs/create",
        "dubbing",
        "4.5",
        JobCreateRequest,
        DubJob,
        _FREE,
        Auth.DUBBING_KEY,
        FORM,
        summary="Dub a medium",
    ),
    Endpoint(
        "create_job_with_project",
        "POST",
        "/v1/dub/jobs/create-with-project-id",
        "dubbing",
        "4.5",
        JobCreateWithProjectRequest,
        DubJob,
        _FREE,
        Auth.DUBBING_KEY,
        FORM,
        summary="Dub a medium in a project",
    ),
    Endpoint(
        "job_status",
        "GET",
        "/v1/dub/jobs/{job_id}/status",
        "dubbing",
        "4.5",
        None,
        DubJobStatus,
        _FREE,
        Auth.DUBBING_KEY,
        summary="How a job is doing",
    ),
    Endpoint(
        "create_project",
        "POST",
        "/v1/dub/projects/create",
        "dubbing",
        "4.5",
        ProjectCreateRequest,
        Project,
        _FREE,
        Auth.DUBBING_KEY,
        JSON,
        summary="Create a project",
    ),
    Endpoint(
        "list_projects",
        "GET",
        "/v1/dub/projects/list",
        "dubbing",
        "4.5",
        None,
        ProjectPage,
        _FREE,
        Auth.DUBBING_KEY,
        query_model=ProjectListQuery,
        summary="List projects, page by page",
    ),
    Endpoint(
        "update_project",
        "PUT",
        "/v1/dub/projects/{project_id}/update",
        "dubbing",
        "4.5",
        ProjectUpdateRequest,
        Project,
        _FREE,
        Auth.DUBBING_KEY,
        JSON,
        summary="Change the locales of a project",
    ),
)
"""The document's endpoints, in its order."""

ADDITIONS: tuple[Endpoint, ...] = (
    Endpoint(
        "utterances",
        "GET",
        "/v1/dub/jobs/{job_id}/utterances",
        "dubbing",
        "addition",
        None,
        DubUtterances,
        _FREE,
        Auth.DUBBING_KEY,
        query_model=UtterancesQuery,
        summary="Who says what in a dub, and when",
        addition=True,
    ),
    Endpoint(
        "update_utterances",
        "PUT",
        "/v1/dub/jobs/{job_id}/utterances",
        "dubbing",
        "addition",
        UtterancesUpdateRequest,
        DubJobStatus,
        _FREE,
        Auth.DUBBING_KEY,
        JSON,
        summary="Correct what is said in a dub",
        addition=True,
    ),
    Endpoint(
        "limits",
        "GET",
        "/v1/limits",
        "additions",
        "addition",
        None,
        Limits,
        (200, 403, 500, 503),
        Auth.KEY,
        summary="What this service allows, and what it chose where the document is silent",
        addition=True,
    ),
    Endpoint(
        "openapi",
        "GET",
        "/v1/openapi.json",
        "additions",
        "addition",
        None,
        None,
        (200,),
        Auth.NONE,
        summary="This description",
        addition=True,
    ),
    Endpoint(
        "health",
        "GET",
        "/healthz",
        "additions",
        "addition",
        None,
        Health,
        (200, 503),
        Auth.NONE,
        summary="Whether the service answers",
        addition=True,
    ),
)
"""Addresses of the local service that the document does not have."""

_BY_NAME = {endpoint.name: endpoint for endpoint in (*ENDPOINTS, *ADDITIONS)}


def by_name(name: str) -> Endpoint:
    """Return an endpoint, the document's or ours, by our short name for it.

    Raises
    ------
    KeyError
        There is none of that name.

    Examples
    --------
    >>> by_name("generate").path
    '/v1/speech/generate'
    """
    return _BY_NAME[name]
