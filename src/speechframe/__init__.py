"""DataFrames in, speech datasets out.

>>> import speechframe as spf
>>> run = spf.generate(["Good morning."], voice="en-US-nora")  # doctest: +SKIP
>>> run.to_pandas()  # doctest: +SKIP

Public names are loaded when they are first used (PEP 562), so that importing
the package costs next to nothing.
"""

import logging
from typing import TYPE_CHECKING, Any

from speechframe._version import __version__

if TYPE_CHECKING:
    from speechframe import aio
    from speechframe._allocator import tune_allocator
    from speechframe.analysis.budgets import check_budgets
    from speechframe.analysis.forecast import Forecast, forecast, plot_burn_down
    from speechframe.analysis.reconcile import Bridge, reconcile
    from speechframe.analysis.report import report
    from speechframe.analysis.usage import UsageTable, plot_usage, usage
    from speechframe.api import (
        change_voice,
        changes,
        configure,
        correct,
        dub,
        generate,
        open_run,
        resume,
        run,
        say,
        stream,
        translate,
        utterances,
        voices,
    )
    from speechframe.audio.clip import Clip
    from speechframe.batch.backend import Answer, Attempt, Backend, Finding, LaneSpec, Opened, Record, Request
    from speechframe.batch.budget import Alert
    from speechframe.batch.changes import Changes
    from speechframe.batch.live import Run
    from speechframe.batch.plan import Estimate
    from speechframe.batch.run_options import RunOptions
    from speechframe.client import (
        Client,
        Stream,
        StreamSession,
        SyncClient,
        SyncStream,
        SyncStreamSession,
    )
    from speechframe.client.webhooks import receive_webhooks
    from speechframe.errors import (
        AnalysisError,
        AudioError,
        BadAnswer,
        BadRequest,
        BudgetExceeded,
        ConnectionFailed,
        EngineError,
        InvalidRows,
        JobFailed,
        ListeningError,
        NotARun,
        PaymentRequired,
        PermissionDenied,
        RateLimited,
        RequestTimeout,
        RunLocked,
        RunMismatch,
        ServerError,
        ServiceError,
        SettingsError,
        SpeechframeError,
        StoreError,
        StreamBroken,
        TimedOut,
        Unavailable,
        VoteRefused,
    )
    from speechframe.listening.offline import read_votes
    from speechframe.listening.server import ServedTest, serve_test
    from speechframe.listening.test import open_test
    from speechframe.local import LocalService, local_service
    from speechframe.settings import Settings
    from speechframe.spec.check import FieldProblem
    from speechframe.tables.column import col
    from speechframe.widgets import browse, compare_voices, gallery, listening_test, play, review, watch

# A library writes to its log and leaves it to its user who reads that.
logging.getLogger(__name__).addHandler(logging.NullHandler())

_MODULES = {
    "speechframe": ("aio",),
    "speechframe.api": (
        "change_voice",
        "changes",
        "configure",
        "correct",
        "dub",
        "generate",
        "open_run",
        "resume",
        "run",
        "say",
        "stream",
        "translate",
        "utterances",
        "voices",
    ),
    "speechframe.analysis.budgets": ("check_budgets",),
    "speechframe.analysis.forecast": ("Forecast", "forecast", "plot_burn_down"),
    "speechframe.analysis.reconcile": ("Bridge", "reconcile"),
    "speechframe.analysis.report": ("report",),
    "speechframe.analysis.usage": ("UsageTable", "plot_usage", "usage"),
    "speechframe.audio.clip": ("Clip",),
    "speechframe.tables.column": ("col",),
    "speechframe._allocator": ("tune_allocator",),
    "speechframe.batch.backend": (
        "Answer",
        "Attempt",
        "Backend",
        "Finding",
        "LaneSpec",
        "Opened",
        "Record",
        "Request",
    ),
    "speechframe.spec.check": ("FieldProblem",),
    "speechframe.batch.plan": ("Estimate",),
    "speechframe.batch.changes": ("Changes",),
    "speechframe.batch.budget": ("Alert",),
    "speechframe.batch.live": ("Run",),
    "speechframe.batch.run_options": ("RunOptions",),
    "speechframe.client": (
        "Client",
        "Stream",
        "StreamSession",
        "SyncClient",
        "SyncStream",
        "SyncStreamSession",
    ),
    "speechframe.client.webhooks": ("receive_webhooks",),
    "speechframe.errors": (
        "AnalysisError",
        "AudioError",
        "BadAnswer",
        "BadRequest",
        "BudgetExceeded",
        "ConnectionFailed",
        "EngineError",
        "InvalidRows",
        "JobFailed",
        "ListeningError",
        "NotARun",
        "PaymentRequired",
        "PermissionDenied",
        "RateLimited",
        "RequestTimeout",
        "RunLocked",
        "RunMismatch",
        "ServerError",
        "ServiceError",
        "SettingsError",
        "SpeechframeError",
        "StoreError",
        "StreamBroken",
        "TimedOut",
        "Unavailable",
        "VoteRefused",
    ),
    "speechframe.listening.offline": ("read_votes",),
    "speechframe.listening.server": ("ServedTest", "serve_test"),
    "speechframe.listening.test": ("open_test",),
    "speechframe.local": ("LocalService", "local_service"),
    "speechframe.settings": ("Settings",),
    "speechframe.widgets": (
        "browse",
        "compare_voices",
        "gallery",
        "listening_test",
        "play",
        "review",
        "watch",
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Alert",
    "AnalysisError",
    "Answer",
    "Attempt",
    "AudioError",
    "Backend",
    "BadAnswer",
    "BadRequest",
    "Bridge",
    "BudgetExceeded",
    "Changes",
    "Client",
    "Clip",
    "ConnectionFailed",
    "EngineError",
    "Estimate",
    "FieldProblem",
    "Finding",
    "Forecast",
    "InvalidRows",
    "JobFailed",
    "LaneSpec",
    "ListeningError",
    "LocalService",
    "NotARun",
    "Opened",
    "PaymentRequired",
    "PermissionDenied",
    "RateLimited",
    "Record",
    "Request",
    "RequestTimeout",
    "Run",
    "RunLocked",
    "RunMismatch",
    "RunOptions",
    "ServedTest",
    "ServerError",
    "ServiceError",
    "Settings",
    "SettingsError",
    "SpeechframeError",
    "StoreError",
    "Stream",
    "StreamBroken",
    "StreamSession",
    "SyncClient",
    "SyncStream",
    "SyncStreamSession",
    "TimedOut",
    "Unavailable",
    "UsageTable",
    "VoteRefused",
    "__version__",
    "aio",
    "browse",
    "change_voice",
    "changes",
    "check_budgets",
    "col",
    "compare_voices",
    "configure",
    "correct",
    "dub",
    "forecast",
    "gallery",
    "generate",
    "listening_test",
    "local_service",
    "open_run",
    "open_test",
    "play",
    "plot_burn_down",
    "plot_usage",
    "read_votes",
    "receive_webhooks",
    "reconcile",
    "report",
    "resume",
    "review",
    "run",
    "say",
    "serve_test",
    "stream",
    "translate",
    "tune_allocator",
    "usage",
    "utterances",
    "voices",
    "watch",
]


def __getattr__(name: str) -> Any:
    import importlib

    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if module == __name__:
        found: Any = importlib.import_module(f"{module}.{name}")
    else:
        found = getattr(importlib.import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
