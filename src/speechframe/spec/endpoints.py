"""All addresses of the service (sections 4, 5 and 7.2 of the document)."""

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

JSON_TYPE = "application/json"
FORM_TYPE = "multipart/form-data"


class Auth(StrEnum):
    """The ways in which a call identifies its key (section 5)."""

    KEY = "api-key header"
    """Optional in the schema, but a call without a valid key gets status 403."""
    KEY_OR_TOKEN = "api-key or token header"  # noqa: S105  (the name of a way, not a secret)
    """For the voice listing. A call without a valid key or token gets status 403."""
    KEY_FOR_TOKEN = "api-key header, 400 without it, 401 for a bad one"  # noqa: S105  (as above)
    """For the token call."""
    DUBBING_KEY = "api-key header with the dubbing key"
    """Required. A call without a valid key gets status 403."""
    KEY_IN_UPGRADE = "api-key query parameter or header"
    """For the WebSocket. Without a valid key the upgrade succeeds, and close code 1008 follows."""
    NONE = "none"
    """No key. Only addresses of ours that are not in the document."""


_FREE_CALL_STATUSES = (200, 400, 403, 500, 503)
_PAID_CALL_STATUSES = (200, 400, 402, 403, 500, 503)
_SPEECH_CALL_STATUSES = tuple(sorted({*_PAID_CALL_STATUSES, *map(int, SPEECH_STATUSES)}))


@dataclass(frozen=True, slots=True)
class Chapter:
    """The facts that all endpoints below a path share.

    Attributes
    ----------
    name, section : str
        Our name of the chapter, and section of the document. The section of our own addresses is "addition".
    auth : Auth
        The way in which a call identifies its key.
    statuses : tuple of int
        Statuses of section 7.2. Generate and stream also have those of section 7.1.
    """

    name: str
    section: str
    auth: Auth
    statuses: tuple[int, ...]


_CHAPTER_BY_PATH = {
    "/v1/speech/stream-input": Chapter("streaming", "4.1", Auth.KEY_IN_UPGRADE, ()),
    "/v1/speech/stream": Chapter("streaming", "4.1", Auth.KEY, _SPEECH_CALL_STATUSES),
    "/v1/speech/generate": Chapter("generate", "4.1", Auth.KEY, _SPEECH_CALL_STATUSES),
    "/v1/speech/voices": Chapter("voices", "4.1", Auth.KEY_OR_TOKEN, _FREE_CALL_STATUSES),
    "/v1/voice-changer/": Chapter("changer", "4.2", Auth.KEY, _PAID_CALL_STATUSES),
    "/v1/text/": Chapter("translate", "4.3", Auth.KEY, _PAID_CALL_STATUSES),
    "/v1/auth/": Chapter("auth", "4.4", Auth.KEY_FOR_TOKEN, (200, 400, 401, 503)),
    "/v1/dub/": Chapter("dubbing", "4.5", Auth.DUBBING_KEY, _FREE_CALL_STATUSES),
    "/v1/limits": Chapter("additions", "addition", Auth.KEY, (200, 403, 500, 503)),
    "/v1/openapi.json": Chapter("additions", "addition", Auth.NONE, (200,)),
    "/healthz": Chapter("additions", "addition", Auth.NONE, (200, 503)),
}
"""Chapters by the beginning of their paths. The first one that fits a path counts."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address of the service with one HTTP method, or the WebSocket.

    Attributes
    ----------
    name : str
        Our short name.
    method, path : str
        HTTP method or "WebSocket", and path. Names in braces are fields of the path.
    summary : str
        Purpose, for the OpenAPI description.
    input_model, response_model : type or None
        Models of the body or query of the request, and of the answer.
    answers_list : bool
        True if the answer is a JSON array of `response_model`.
    addition : bool
        True if the document does not have the address.
    """

    name: str
    method: str
    path: str
    summary: str
    input_model: type[DocumentModel] | None = None
    response_model: type[DocumentModel] | None = None
    answers_list: bool = False
    addition: bool = False

    @property
    def chapter(self) -> Chapter:
        """Chapter of the path."""
        return next(chapter for start, chapter in _CHAPTER_BY_PATH.items() if self.path.startswith(start))

    @property
    def request_model(self) -> type[DocumentModel] | None:
        """Model of the body of the request. None without a body."""
        return self.input_model if self.method in {"POST", "PUT"} else None

    @property
    def query_model(self) -> type[DocumentModel] | None:
        """Model of the query. None without a query."""
        return None if self.request_model else self.input_model

    @property
    def content_type(self) -> str | None:
        """Media type of the request's body. None without a body."""
        if self.request_model is None:
            return None
        return FORM_TYPE if "file" in self.request_model.model_fields else JSON_TYPE

    @property
    def path_fields(self) -> tuple[str, ...]:
        """Names of the fields in the path, which are in braces."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("stream", "POST", "/v1/speech/stream", "Speak a text as a stream of audio", StreamRequest),
    Endpoint("generate", "POST", "/v1/speech/generate", "Speak a text", GenerateRequest, GenerateResponse),
    Endpoint(
        "voices",
        "GET",
        "/v1/speech/voices",
        "List the voices of a model",
        VoicesQuery,
        Voice,
        answers_list=True,
    ),
    Endpoint(
        "stream_input",
        "WebSocket",
        "/v1/speech/stream-input",
        "Speak text frames, context by context",
        SocketQuery,
    ),
    Endpoint(
        "convert",
        "POST",
        "/v1/voice-changer/convert",
        "Speak a clip in another voice",
        ConvertRequest,
        ConvertResponse,
    ),
    Endpoint(
        "translate",
        "POST",
        "/v1/text/translate",
        "Translate texts into one language",
        TranslateRequest,
        TranslateResponse,
    ),
    Endpoint("token", "GET", "/v1/auth/token", "Get a short-lived token", None, AuthToken),
    Endpoint(
        "list_destination_languages",
        "GET",
        "/v1/dub/list-destination-languages",
        "List the locales that can be dubbed into",
        None,
        DestinationLocale,
        answers_list=True,
    ),
    Endpoint(
        "list_source_languages",
        "GET",
        "/v1/dub/list-source-languages",
        "List the locales that can be dubbed from",
        None,
        SourceLocale,
        answers_list=True,
    ),
    Endpoint("create_job", "POST", "/v1/dub/jobs/create", "Dub a media file", JobCreateRequest, DubJob),
    Endpoint(
        "create_job_with_project",
        "POST",
        "/v1/dub/jobs/create-with-project-id",
        "Dub a media file in a project",
        JobCreateWithProjectRequest,
        DubJob,
    ),
    Endpoint(
        "job_status", "GET", "/v1/dub/jobs/{job_id}/status", "Get the status of a job", None, DubJobStatus
    ),
    Endpoint(
        "create_project", "POST", "/v1/dub/projects/create", "Create a project", ProjectCreateRequest, Project
    ),
    Endpoint(
        "list_projects",
        "GET",
        "/v1/dub/projects/list",
        "List projects, page by page",
        ProjectListQuery,
        ProjectPage,
    ),
    Endpoint(
        "update_project",
        "PUT",
        "/v1/dub/projects/{project_id}/update",
        "Change the locales of a project",
        ProjectUpdateRequest,
        Project,
    ),
    Endpoint(
        "utterances",
        "GET",
        "/v1/dub/jobs/{job_id}/utterances",
        "List the utterances of a dub with their times",
        UtterancesQuery,
        DubUtterances,
        addition=True,
    ),
    Endpoint(
        "update_utterances",
        "PUT",
        "/v1/dub/jobs/{job_id}/utterances",
        "Correct texts and voices of a dub",
        UtterancesUpdateRequest,
        DubJobStatus,
        addition=True,
    ),
    Endpoint(
        "limits",
        "GET",
        "/v1/limits",
        "Get the limits of this service, and its choices where the document is open",
        None,
        Limits,
        addition=True,
    ),
    Endpoint("openapi", "GET", "/v1/openapi.json", "Get this OpenAPI description", addition=True),
    Endpoint(
        "health", "GET", "/healthz", "Check whether the service is working", None, Health, addition=True
    ),
)
"""All endpoints of the document, in its order, and then our own addresses."""

_ENDPOINTS_BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS}


def get_endpoint(name: str) -> Endpoint:
    """Return the endpoint with a short name. The endpoint may be one of ours.

    Raises
    ------
    KeyError
        No endpoint has this name.

    Examples
    --------
    >>> get_endpoint("generate").path
    '/v1/speech/generate'
    """
    return _ENDPOINTS_BY_NAME[name]
