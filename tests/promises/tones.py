"""A service in this process that whistles: all that a backend of one's own takes."""

import asyncio
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import soundfile as sf

import speechframe as spf
from speechframe import Answer, LaneSpec, Opened, Record, Request

RATE_HZ = 8000
AUDIO = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


class Tones(spf.Backend):
    """Whistles a row's letters at its pitch, three at once, for a credit a letter."""

    operation = "tones"
    columns = pa.schema([("audio", AUDIO), ("audio_seconds", pa.float64()), ("pitch_hz", pa.float64())])
    arguments = ("text", "pitch_hz")
    service = "tones/1"

    def __init__(self, bills):
        self._bills = Path(bills)

    async def open(self):
        return Opened((LaneSpec("here", f"tones {self._bills}", published=3),))

    async def close(self):
        pass

    def check(self, values):
        if "text" not in values:
            return ["has nothing to whistle"]
        asked = {"text": values["text"], "pitch_hz": float(values.get("pitch_hz", 440))}
        if not 20 <= asked["pitch_hz"] <= 4000:
            return [spf.FieldProblem("pitch_hz", "cannot be heard", str(asked["pitch_hz"]), "20 to 4000")]
        body = json.dumps(asked).encode()
        return Request(body, body, price=1000 * len(asked["text"]), characters=len(asked["text"]))

    async def send(self, request, attempt):
        await asyncio.sleep(0.02)
        asked = json.loads(request.body)
        if "silence" in asked["text"]:
            raise spf.BadRequest("nobody whistles that", status=400)
        with self._bills.open("a", encoding="utf-8") as bills:
            bills.write(f"{asked['text']}\n")
        seconds = np.arange(RATE_HZ * len(asked["text"]) // 50) / RATE_HZ
        return Answer((asked["pitch_hz"], 0.5 * np.sin(2 * np.pi * asked["pitch_hz"] * seconds)))

    def records(self, request, answer):
        pitch_hz, samples = answer.data
        sf.write(file := io.BytesIO(), samples, RATE_HZ, format="WAV")
        heard = {"audio_seconds": len(samples) / RATE_HZ, "pitch_hz": pitch_hz}
        return [Record(heard, audio=file.getvalue(), audio_name="tone.wav")]
