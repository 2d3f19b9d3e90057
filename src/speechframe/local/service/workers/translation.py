"""The jobs of a worker process that translate texts, and that detect the languages of texts."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from speechframe.engines import registry
from speechframe.local.engines.translation.language import detect_languages
from speechframe.local.engines.translation.routes import RouteStep, translate_along
from speechframe.local.service.workers.job import Facts, WorkerJob, WorkerReply


@dataclass(frozen=True)
class TranslateJob(WorkerJob):
    """Translate texts along the steps of a route."""

    texts: Sequence[str]
    steps: Sequence[RouteStep]

    def run(self) -> WorkerReply:
        """Return the translations as a JSON list."""
        started = time.process_time()
        return _make_reply(translate_along(self.texts, self.steps, registry.load_translators()), started)


@dataclass(frozen=True)
class LanguagesJob(WorkerJob):
    """Detect the language of each text, among `languages`."""

    texts: Sequence[str]
    languages: Sequence[str]

    def run(self) -> WorkerReply:
        """Return the languages as a JSON list."""
        started = time.process_time()
        return _make_reply(detect_languages(self.texts, self.languages), started)


def _make_reply(texts: list[str], started: float) -> WorkerReply:
    # Replace lone surrogates, which a plug-in may return, because the answer must be valid UTF-8.
    clean = [text.encode(errors="replace").decode() for text in texts]
    spent_ms = (time.process_time() - started) * 1000
    return WorkerReply(Facts(engine_ms=spent_ms), json.dumps(clean).encode())
