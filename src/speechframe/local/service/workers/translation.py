"""A worker's jobs ``translate`` and ``tell_languages``: texts along a route, and the languages of texts."""

import json
import time
from typing import Any

from speechframe.engines import registry
from speechframe.engines.base import Quality, TranslationPair
from speechframe.local.engines.translation.language import detected
from speechframe.local.engines.translation.routes import RouteStep, translated
from speechframe.local.service.workers.job import Facts, WorkerReply


def translate(job: dict[str, Any]) -> WorkerReply:
    """Return translations as a JSON list; the job names ``texts`` and the ``steps`` of a route."""
    started = time.process_time()
    steps = [step(fields) for fields in job["steps"]]
    return _reply(translated(job["texts"], steps, registry.translators()), started)


def tell_languages(job: dict[str, Any]) -> WorkerReply:
    """Return a language a text as a JSON list; the job names ``texts`` and their ``languages``, perhaps."""
    started = time.process_time()
    return _reply(detected(job["texts"], job["languages"]), started)


def fields_of(step: RouteStep) -> dict[str, str]:
    """Return a step as a job has it."""
    pair = step.pair
    return {
        "engine": step.engine,
        "source": pair.source,
        "target": pair.target,
        "quality": pair.quality.value,
    }


def step(fields: dict[str, str]) -> RouteStep:
    """Return the step of a job's fields."""
    pair = TranslationPair(fields["source"], fields["target"], Quality(fields["quality"]))
    return RouteStep(fields["engine"], pair)


def _reply(texts: list[str], started: float) -> WorkerReply:
    # Half a surrogate pair, from a plug-in, would break the answer that goes out as UTF-8.
    clean = [text.encode(errors="replace").decode() for text in texts]
    spent_ms = (time.process_time() - started) * 1000
    return WorkerReply(Facts(engine_ms=spent_ms), json.dumps(clean).encode())
