"""The client without ``await``: every method runs its twin on the package's one background loop."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from pydantic import SecretStr

from speechframe._loop import run_sync
from speechframe.client.calls import Call, Spoken, make_call
from speechframe.client.client import AudioLike, Client, hidden_key
from speechframe.client.http_stream import make_stream_call, start
from speechframe.client.sync_stream import SyncStream, SyncStreamSession
from speechframe.client.translate import Translated
from speechframe.settings import Settings
from speechframe.spec.auth import AuthToken
from speechframe.spec.speech import Voice


class SyncClient:
    """:class:`Client` for scripts and notebook cells; parameters and errors are the same.

    It may be shared by threads: all of them use the one loop.

    Examples
    --------
    >>> with SyncClient(base_url="http://127.0.0.1:8099", api_key="my-key") as client:
    ...     client.regions
    ('global',)
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        api_key: str | SecretStr | None = None,
        **options: Any,
    ) -> None:
        api_key = hidden_key(api_key)
        self._client = Client(settings, api_key=api_key, **options)

    def __repr__(self) -> str:
        """Return the service and its regions, never the key."""
        return f"Sync{getattr(self, '_client', 'Client()')!s}"

    @property
    def regions(self) -> tuple[str, ...]:
        """Names of the regions in order of preference."""
        return self._client.regions

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._client.settings

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        self.close()

    def close(self) -> None:
        """Close every stream, session and connection; further calls raise RuntimeError."""
        run_sync(self._client.close())

    def send_once(
        self,
        call: Call[Any],
        *,
        region: str | None = None,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the answer to one attempt; see :meth:`Client.send_once`."""
        return run_sync(self._client.send_once(call, region=region, timeout_s=timeout_s, headers=headers))

    def call(self, call: Call[Any]) -> Any:
        """Return the answer, retrying within the client's patience; see :meth:`Client.call`."""
        return run_sync(self._client.call(call))

    def generate(
        self,
        text: str,
        *,
        voice: str,
        model: str = "gen2",
        take: int = 0,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Spoken:
        """Return `text` spoken; see :meth:`Client.generate`."""
        # Made here, in the caller's thread, so that a DeprecationWarning names the caller's line.
        made = make_call(
            text, voice=voice, model=model, take=take, idempotency_key=idempotency_key, stacklevel=3, **fields
        )
        spoken: Spoken = run_sync(self._client.call(made))
        return spoken

    def stream(
        self,
        text: str,
        *,
        voice: str,
        model: str | None = None,
        take: int = 0,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> SyncStream:
        """Return `text` as audio that is heard while it arrives; see :meth:`Client.stream`."""
        # Made here, in the caller's thread, so that a DeprecationWarning names the caller's line.
        call = make_stream_call(
            text, voice=voice, model=model, take=take, idempotency_key=idempotency_key, stacklevel=3, **fields
        )
        return SyncStream(run_sync(start(self._client._reach, call)))  # noqa: SLF001 - its twin

    def stream_session(
        self, *, voice: str | None = None, max_contexts: int | None = None, **fields: Any
    ) -> SyncStreamSession:
        """Return a session over the WebSocket; see :meth:`Client.stream_session`."""
        session = self._client.stream_session(voice=voice, max_contexts=max_contexts, **fields)
        return SyncStreamSession(session)

    def change_voice(
        self,
        audio: AudioLike,
        *,
        voice: str,
        locale: str | None = None,
        take: int = 0,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Spoken:
        """Return a clip in another voice; see :meth:`Client.change_voice`."""
        return run_sync(
            self._client.change_voice(
                audio, voice=voice, locale=locale, take=take, idempotency_key=idempotency_key, **fields
            )
        )

    def translate(
        self,
        texts: Sequence[str],
        *,
        target: str,
        source: str | None = None,
        idempotency_key: str | None = None,
    ) -> Translated:
        """Return `texts` translated; see :meth:`Client.translate`."""
        return run_sync(
            self._client.translate(texts, target=target, source=source, idempotency_key=idempotency_key)
        )

    def voices(self, model: str = "gen2", *, token: str | SecretStr | None = None) -> list[Voice]:
        """Return the voices of a model's catalogue; see :meth:`Client.voices`."""
        token = hidden_key(token)
        return run_sync(self._client.voices(model, token=token))

    def token(self) -> AuthToken:
        """Return a short-lived token in exchange for the key; see :meth:`Client.token`."""
        return run_sync(self._client.token())

    def limits(self) -> dict[str, Any] | None:
        """Return the page of limits that a speechframe service has; see :meth:`Client.limits`."""
        return run_sync(self._client.limits())
