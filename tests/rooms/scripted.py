"""A service in this process: the first word of a row says what becomes of it. Its runs need no network."""

import asyncio
import json
from types import SimpleNamespace

import pyarrow as pa

import speechframe as spf
from speechframe.spec.check import FieldProblem

AUDIO = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
SOUND = {"format": "WAV", "sample_rate": 8000, "audio_seconds": 1.0}


def heard(text, take=0):
    """Return the audio that a text gets."""
    return f"audio of {text} {take}".encode()


class Scripted(spf.Backend):
    """Answers each row, unless it begins with ``invalid``, ``failed``, ``unknown`` or ``suspect``.

    A call of a row that begins with ``slow`` never ends; one with ``warned`` has two warnings.
    """

    operation, service = "scripted", "scripted/1"
    arguments = ("text",)
    columns = pa.schema(
        [("text", pa.string()), ("audio", AUDIO), ("format", pa.string()), ("sample_rate", pa.int32()),
         ("audio_seconds", pa.float64())]
    )  # fmt: skip

    def __init__(self, *lanes, audio=heard):
        self.lanes = lanes or (spf.LaneSpec("here", f"scripted {id(self)}", published=1),)
        self.audio = audio

    async def open(self):
        return spf.Opened(self.lanes)

    async def close(self):
        pass

    def check(self, values):
        if values["text"].startswith("invalid"):
            return [FieldProblem("text", "cannot be said", values["text"], "anything else")]
        body = json.dumps(values).encode()
        return spf.Request(body, body, price=1000)

    async def send(self, request, attempt):
        text = json.loads(request.body)["text"]
        if text.startswith("slow"):
            await asyncio.Event().wait()
        if text.startswith("failed"):
            raise spf.BadRequest("nobody says that", status=400)
        if text.startswith("unknown"):
            raise spf.ConnectionFailed("it was cut off", sent=True)
        return spf.Answer((text, self.audio(text, attempt.take)))

    def records(self, request, answer):
        text, audio = answer.data
        warnings = [f"pause of {text[-2:]} s was clamped", "slow"] if text.startswith("warned") else []
        return [spf.Record({"text": text, **SOUND}, audio=audio, audio_name="a.wav", warnings=warnings)]

    def judge(self, request, record, learned):
        is_odd = record.values["text"].startswith("suspect")
        return [SimpleNamespace(code="odd", words="too short")] if is_odd else []


def make(folder, table, *, backend=None, **options):
    """Make a run of a scripted service, one call after the other."""
    given = {"run_dir": folder, "progress": False, "on_invalid": "skip", **options}
    return spf.run(backend or Scripted(), table, **given)


def begun(folder, table, ended, **options):
    """Return a live run whose first `ended` calls have ended."""
    run = make(folder, table, wait=False, **options)
    outcomes = iter(run.outcomes())
    for _ in range(ended):
        next(outcomes)
    return run
