"""The verbs as plain functions. Each runs the async function of its name in :mod:`speechframe.aio`."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import fields
from typing import Any, ParamSpec

from speechframe import aio
from speechframe import settings as _settings
from speechframe.batch.options import OPTION_NAMES, Options, configure_options
from speechframe.client import Stream, SyncStream
from speechframe.processes.loop import make_sync
from speechframe.settings.hidden import hide_keys
from speechframe.settings.typed import make_unknown_name_error

P = ParamSpec("P")


def _make_sync_stream(function: Callable[P, Coroutine[Any, Any, Stream]]) -> Callable[P, SyncStream]:
    """Return a synchronous version of an async function that returns a stream."""
    begin = make_sync(function)

    @functools.wraps(begin)
    def twin(*args: P.args, **kwargs: P.kwargs) -> SyncStream:
        return SyncStream(begin(*args, **kwargs))

    signature = inspect.signature(begin).replace(return_annotation=SyncStream)
    twin.__signature__ = signature  # type: ignore[attr-defined]
    return twin


generate = make_sync(aio.generate)
change_voice = make_sync(aio.change_voice)
translate = make_sync(aio.translate)
dub = make_sync(aio.dub)
utterances = make_sync(aio.utterances)
correct = make_sync(aio.correct)
run = make_sync(aio.run)
transcribe = make_sync(aio.transcribe)
resume = make_sync(aio.resume)
changes = make_sync(aio.changes)
say = make_sync(aio.say)
stream = _make_sync_stream(aio.stream)
voices = make_sync(aio.voices)
export = make_sync(aio.export)
to_datasets = make_sync(aio.to_datasets)


def configure(**values: Any) -> None:
    """Set settings and run options for every later call in this process. ``None`` removes a value.

    Parameters
    ----------
    **values
        Fields of :class:`speechframe.Settings` (``api_key``, ``base_url``, ``regions``, ...) and
        run options (``max_concurrency``, ``max_credits``, ``progress``, ...; see :class:`RunOptions`).

    Raises
    ------
    SettingsError
        If a name is unknown or a value is not allowed. Then no value is set.

    Examples
    --------
    >>> configure(max_concurrency=4, progress=False)
    >>> configure(max_concurrency=None, progress=None)
    """
    hide_keys(values)
    known = {*OPTION_NAMES, *(field.name for field in fields(_settings.Settings))}
    if unknown := next((name for name in values if name not in known), None):
        raise make_unknown_name_error("setting", unknown, sorted(known))
    # `service` is both a run option (an object) and a setting (a folder). Here it is the setting.
    options = {k: v for k, v in values.items() if k in OPTION_NAMES and k != "service"}
    settings = {k: v for k, v in values.items() if k not in options}
    # Check the options before anything is set, because either all values are set or none.
    Options.from_given(**options)
    _settings.configure(**settings)
    configure_options(**options)
