"""The client without ``await``: every method runs its twin on the package's one background loop."""

from typing import Any

from pydantic import SecretStr

from speechframe._loop import run_sync
from speechframe.old_client._blocking import blocking
from speechframe.old_client._closing import Closing
from speechframe.old_client.calls import Spoken, make_call
from speechframe.old_client.client import AudioLike, Client
from speechframe.old_client.http_stream import make_stream_call, start
from speechframe.old_client.socket import StreamSession
from speechframe.old_client.sync_stream import SyncStream, SyncStreamSession
from speechframe.settings import Settings
from speechframe.settings.hidden import hidden_key, hide
from speechframe.spec.speech import Voice


class SyncClient(Closing):
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
        options = hide({"api_key": api_key, **options})
        del api_key
        self._inner = Client(settings, **options)

    def __repr__(self) -> str:
        """Return the service and its regions, never the key."""
        return f"Sync{getattr(self, '_inner', 'Client()')!s}"

    @property
    def regions(self) -> tuple[str, ...]:
        """Names of the regions in order of preference."""
        return self._inner.regions

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._inner.settings

    close = blocking(Client.close)
    send_once = blocking(Client.send_once)
    call = blocking(Client.call)

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
        spoken: Spoken = self.call(made)
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
        return SyncStream(run_sync(start(self._inner._reach, call)))  # noqa: SLF001 - its twin

    def stream_session(
        self, *, voice: str | None = None, max_contexts: int | None = None, **fields: Any
    ) -> SyncStreamSession:
        """Return a session over the WebSocket; see :meth:`Client.stream_session`."""

        async def make() -> StreamSession:
            # In the loop: what the sessions of a client share is for no other thread to change.
            return self._inner.stream_session(voice=voice, max_contexts=max_contexts, **fields)

        return SyncStreamSession(run_sync(make()))

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
            self._inner.change_voice(
                audio, voice=voice, locale=locale, take=take, idempotency_key=idempotency_key, **fields
            )
        )

    translate = blocking(Client.translate)

    def voices(self, model: str = "gen2", *, token: str | SecretStr | None = None) -> list[Voice]:
        """Return the voices of a model's catalogue; see :meth:`Client.voices`."""
        # Written out, since a twin's arguments would show the token in a detailed traceback.
        token = hidden_key(token)
        return run_sync(self._inner.voices(model, token=token))

    token = blocking(Client.token)
    limits = blocking(Client.limits)
