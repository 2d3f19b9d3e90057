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


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address of the service with one HTTP method, or the WebSocket.

    Attributes
    ----------
    name : str
        Our short name.
    method, path : str
        HTTP method or "WebSocket", and path. Names in braces are fields of the path.
    chapter, section : str
        Our name of the chapter, and section of the document. The section of our own addresses is "addition".
    request_model, response_model : type or None
        Models of the body of the request and of the answer.
    statuses : tuple of int
        Statuses of section 7.2. Generate and stream also have those of section 7.1.
    auth : Auth
        The way in which a call identifies its key.
    content_type : str or None
        Media type of the request's body. None without a body.
    query_model : type or None
        Model of the query.
    answers_list : bool
        True if the answer is a JSON array of `response_model`.
    summary : str
        Purpose, for the OpenAPI description.
    addition : bool
        True if the document does not have the address.
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
        """Names of the fields in the path, which are in braces."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))


_PAID_CALL_STATUSES = (200, 400, 402, 403, 500, 503)
_SPEECH_CALL_STATUSES = tuple(sorted({*_PAID_CALL_STATUSES, *map(int, SPEECH_STATUSES)}))
_FREE_CALL_STATUSES = (200, 400, 403, 500, 503)
_TOKEN_CALL_STATUSES = (200, 400, 401, 503)

DOCUMENT_ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "stream",
        "POST",
        "/v1/speech/stream",
        "streaming",
        "4.1",
        StreamRequest,
        None,
        _SPEECH_CALL_STATUSES,
        Auth.KEY,
        JSON_TYPE,
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
        _SPEECH_CALL_STATUSES,
        Auth.KEY,
        JSON_TYPE,
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
        _FREE_CALL_STATUSES,
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
        _PAID_CALL_STATUSES,
        Auth.KEY,
        FORM_TYPE,
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
        _PAID_CALL_STATUSES,
        Auth.KEY,
        JSON_TYPE,
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
        _TOKEN_CALL_STATUSES,
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
        _FREE_CALL_STATUSES,
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
        _FREE_CALL_STATUSES,
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
        _FREE_CALL_STATUSES,
        Auth.DUBBING_KEY,
        FORM_TYPE,
        summary="Dub a media file",
    ),
    Endpoint(
        "create_job_with_project",
        "POST",
        "/v1/dub/jobs/create-with-project-id",
        "dubbing",
        "4.5",
        JobCreateWithProjectRequest,
        DubJob,
        _FREE_CALL_STATUSES,
        Auth.DUBBING_KEY,
        FORM_TYPE,
        summary="Dub a media file in a project",
    ),
    Endpoint(
        "job_status",
        "GET",
        "/v1/dub/jobs/{job_id}/status",
        "dubbing",
        "4.5",
        None,
        DubJobStatus,
        _FREE_CALL_STATUSES,
        Auth.DUBBING_KEY,
        summary="Get the status of a job",
    ),
    Endpoint(
        "create_project",
        "POST",
        "/v1/dub/projects/create",
        "dubbing",
        "4.5",
        ProjectCreateRequest,
        Project,
        _FREE_CALL_STATUSES,
        Auth.DUBBING_KEY,
        JSON_TYPE,
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
        _FREE_CALL_STATUSES,
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
        _FREE_CALL_STATUSES,
        Auth.DUBBING_KEY,
        JSON_TYPE,
        summary="Change the locales of a project",
    ),
)
"""All endpoints of the document, in its order."""

ADDED_ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "utterances",
        "GET",
        "/v1/dub/jobs/{job_id}/utterances",
        "dubbing",
        "addition",
        None,
        DubUtterances,
        _FREE_CALL_STATUSES,
        Auth.DUBBING_KEY,
        query_model=UtterancesQuery,
        summary="List the utterances of a dub with their times",
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
        _FREE_CALL_STATUSES,
        Auth.DUBBING_KEY,
        JSON_TYPE,
        summary="Correct texts and voices of a dub",
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
        summary="Get the limits of this service, and its choices where the document is open",
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
        summary="Get this OpenAPI description",
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
        summary="Check whether the service is working",
        addition=True,
    ),
)
"""Addresses of the local service that the document does not have."""

_ENDPOINTS_BY_NAME = {endpoint.name: endpoint for endpoint in (*DOCUMENT_ENDPOINTS, *ADDED_ENDPOINTS)}


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
