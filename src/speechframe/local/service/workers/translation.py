"""The jobs ``translate`` and ``tell_languages`` of a worker process.

``translate`` translates texts along a route. ``tell_languages`` detects the languages of texts.
"""

import json
import time
from typing import Any

from speechframe.engines import registry
from speechframe.engines.base import Quality, TranslationPair
from speechframe.local.engines.translation.language import detect_languages
from speechframe.local.engines.translation.routes import RouteStep, translate_along
from speechframe.local.service.workers.job import Facts, WorkerReply


def translate(job: dict[str, Any]) -> WorkerReply:
    """Translate the job's ``texts`` along the ``steps`` of a route. The reply's result is a JSON list."""
    started = time.process_time()
    steps = [decode_step(fields) for fields in job["steps"]]
    return _make_reply(translate_along(job["texts"], steps, registry.load_translators()), started)


def answer_languages(job: dict[str, Any]) -> WorkerReply:
    """Detect the language of each of the job's ``texts``, among ``languages``.

    The reply's result is a JSON list with one language for each text.
    """
    started = time.process_time()
    return _make_reply(detect_languages(job["texts"], job["languages"]), started)


def encode_step(step: RouteStep) -> dict[str, str]:
    """Return a step of a route as fields of a job, which are JSON values."""
    pair = step.pair
    return {
        "engine": step.engine,
        "source": pair.source,
        "target": pair.target,
        "quality": pair.quality.value,
    }


def decode_step(fields: dict[str, str]) -> RouteStep:
    """Return the step of a route that the fields of a job describe."""
    pair = TranslationPair(fields["source"], fields["target"], Quality(fields["quality"]))
    return RouteStep(fields["engine"], pair)


def _make_reply(texts: list[str], started: float) -> WorkerReply:
    # Replace lone surrogates, which a plug-in may return, because the answer must be valid UTF-8.
    clean = [text.encode(errors="replace").decode() for text in texts]
    spent_ms = (time.process_time() - started) * 1000
    return WorkerReply(Facts(engine_ms=spent_ms), json.dumps(clean).encode())
