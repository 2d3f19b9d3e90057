"""The verbs as async functions, for async programs.

The package's own ``speechframe.generate`` is ``sync(aio.generate)``. Only this module starts the embedded
local service if no key and no address are set. The modules below always get the settings of a service.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from speechframe import settings as _settings
from speechframe.errors import SettingsError
from speechframe.local.start import LocalService, get_shared_service
from speechframe.settings import Settings
from speechframe.settings.hidden import mask_address
from speechframe.verbs import change_voice as _change_voice
from speechframe.verbs import changes as _changes
from speechframe.verbs import correct as _correct
from speechframe.verbs import dub as _dub
from speechframe.verbs import export as _export
from speechframe.verbs import generate as _generate
from speechframe.verbs import resume as _resume
from speechframe.verbs import run as _run
from speechframe.verbs import say as _say
from speechframe.verbs import stream as _stream
from speechframe.verbs import transcribe as _transcribe
from speechframe.verbs import translate as _translate
from speechframe.verbs import utterances as _utterances
from speechframe.verbs import voices as _voices

P = ParamSpec("P")
T = TypeVar("T")

ServiceLike = Settings | LocalService | None
"""The type of ``service=``. Settings name a hosted service. None stands for the configured service."""


async def resolve_service(service: Any = None) -> Settings:
    """Return the settings of the service that gets the calls.

    Parameters
    ----------
    service
        :class:`Settings` or a :class:`LocalService`. None (default) stands for the configured service, or
        else for the embedded local service of this process.

    Raises
    ------
    SettingsError
        If the configuration is incomplete, or the local service cannot start.
    """
    if isinstance(service, Settings):
        return service
    if isinstance(service, LocalService):
        return service.settings
    if isinstance(found := getattr(service, "settings", None), Settings):
        # Accept any object with settings, such as a service of the user's tests.
        return found
    if service is not None:
        raise SettingsError(
            f"service={mask_address(service)!r} is not a service; allowed: Settings(...), a local_service(), "
            "or None"
        )
    found = _settings.resolve_settings()
    if not found.is_local:
        return found
    started = await asyncio.to_thread(get_shared_service, found.service)
    return started.settings


def _with_service(
    function: Callable[P, Coroutine[Any, Any, T]],
    *,
    is_optional: bool = False,
    needs_service: Callable[..., bool] | None = None,
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return `function` with the settings of a service in the place of its argument `service`.

    With `is_optional` the argument is None if no service was given and none can be used. `needs_service` gets
    the arguments of a call. If it returns False, `service` stays as it was given.
    """

    @functools.wraps(function)
    async def pass_service(*args: P.args, **kwargs: P.kwargs) -> T:
        # A backend of the user already has its address.
        if kwargs.get("backend") is None and (needs_service is None or needs_service(*args, **kwargs)):
            try:
                kwargs["service"] = await resolve_service(kwargs.get("service"))
            except SettingsError:
                if not is_optional or kwargs.get("service") is not None:
                    raise
        return await function(*args, **kwargs)

    pass_service.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return pass_service


generate = _with_service(_generate.generate)
change_voice = _with_service(_change_voice.change_voice)
translate = _with_service(_translate.translate)
dub = _with_service(_dub.dub)
utterances = _with_service(_utterances.utterances)
correct = _with_service(_correct.correct)
resume = _with_service(_resume.resume, needs_service=_resume.needs_service)
changes = _with_service(_changes.changes, needs_service=_resume.needs_service)
say = _with_service(_say.say)
stream = _with_service(_stream.stream)
voices = _with_service(_voices.voices)
run = _run.run
transcribe = _transcribe.transcribe
export = _with_service(_export.export, is_optional=True)
to_datasets = _with_service(_export.to_datasets, is_optional=True)
