"""Helpers of the suites (classes of tests for engines): cached engines, refusals, checks and word errors."""

import hashlib
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from speechframe.audio import measure
from speechframe.engines.base import Speech, Word
from speechframe.engines.kinds import EngineKind
from speechframe.errors import EngineError

_CHILD_TIMEOUT_S = 300.0
"""Time limit in seconds for the calls in a new process, long enough for slow engines on a slow machine."""
_CHILD_CODE = """
import pickle, sys
job = pickle.load(sys.stdin.buffer)
answer = [job["summarise"](getattr(job["engine"](), job["part"])(*call)) for call in job["calls"]]
sys.stdout.buffer.write(b"\\n" + pickle.dumps(answer).hex().encode())
"""


@lru_cache(maxsize=8)
def get_cached_engine(engine: Callable[[], Any]) -> Any:
    """Return an instance of the class `engine`. The instance is created once and then cached."""
    return engine()


def check_engine_parts(engine: Any, kind: EngineKind) -> None:
    """Assert that an engine has a name, a version, and the methods and attributes that `kind` requires."""
    for part in kind.parts:
        assert hasattr(type(engine), part) or hasattr(engine, part), f"a {kind.name} has {part}"
    assert isinstance(engine.name, str), "the name is text"
    assert engine.name, "it has a name"
    assert isinstance(engine.version, str), "the version is text"
    assert engine.version, "it has a version"


def check_words(words: Sequence[Word], audio_seconds: float) -> None:
    """Assert that words are in order, do not overlap, and end before the audio ends."""
    at_ms = 0
    for word in words:
        assert at_ms <= word.start_ms <= word.end_ms, (
            f"{word} begins after the word before, which ends at {at_ms}"
        )
        at_ms = word.end_ms
    assert at_ms <= round(1000 * audio_seconds), "the last word ends inside the audio"


def catch_refusal(call: Callable[[], Any]) -> str:
    """Return the message of the EngineError that a call raises. If it returns, raise AssertionError."""
    try:
        answer = call()
    except EngineError as error:
        return str(error)
    raise AssertionError(f"this should have raised EngineError, and returned {answer!r:.200}")


def call_in_new_process(
    engine: Callable[[], Any], part: str, calls: Sequence[tuple[Any, ...]], summarise: Callable[[Any], Any]
) -> list[Any]:
    """Create an engine in a new process, call its method, and summarise the result of each call.

    ``part`` is the name of the method, and ``calls`` contains the arguments of each call. ``summarise``
    converts a result into a value that can be compared. The engine's class and ``summarise`` must be
    importable by name.
    """
    job = pickle.dumps({"engine": engine, "part": part, "calls": list(calls), "summarise": summarise})
    ended = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", _CHILD_CODE],
        input=job,
        capture_output=True,
        timeout=_CHILD_TIMEOUT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")
    answer: list[Any] = pickle.loads(bytes.fromhex(ended.stdout.split(b"\n")[-1].decode()))  # noqa: S301 - ours
    return answer


def hash_speech(speech: Speech) -> str:
    """Return a hash of the samples, sample rate, words and warnings of a speech."""
    facts = repr((speech.sample_rate_hz, speech.words, speech.warnings)).encode()
    return hashlib.sha256(speech.samples.tobytes() + facts).hexdigest()


def measure_f0_hz(speech: Speech) -> float:
    """Return the median pitch (F0) of a speech in Hz."""
    return measure.median_f0_hz(speech.samples, speech.sample_rate_hz)


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation.

    Examples
    --------
    >>> split_words("It's late; go home!")
    ["it's", 'late', 'go', 'home']
    """
    return re.sub(r"[^\w' ]+", " ", text.lower()).split()


def measure_word_error(spoken: str, recognised: str) -> float:
    """Return the word error rate: wrong, missing and added words, divided by the number of words in `spoken`.

    Examples
    --------
    >>> measure_word_error("the cat sat on a mat", "the cat sat on the mat")
    0.16666666666666666
    """
    wanted, found = split_words(spoken), split_words(recognised)
    distances = list(range(len(found) + 1))
    for row, word in enumerate(wanted, start=1):
        before, distances[0] = distances[0], row
        for column, other in enumerate(found, start=1):
            least = min(distances[column] + 1, distances[column - 1] + 1, before + (word != other))
            before, distances[column] = distances[column], least
    return distances[-1] / len(wanted)
