"""A process that recognises speech, one clip at a time. Clips and transcripts pass through its pipes.

Run as ``python -m speechframe.recognition.worker PARENT_PID [NAME]``. A crash of a native library ends only
this process. The process ends with its parent. Between clips it ends at the end of its standard input. During
a clip the kernel signals the death of the parent.
"""

import json
import math
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from speechframe.audio import codec, media
from speechframe.audio._samples import mix_channels
from speechframe.engines.base import Recogniser, Recording
from speechframe.errors import AudioError, EngineError, SpeechframeError
from speechframe.processes.parent import end_with_parent
from speechframe.recognition.alignment import INSTALL_COMMAND, find_recogniser
from speechframe.recognition.scoring import count_errors
from speechframe.spec.speech import Format


def main() -> None:
    """Answer the messages from standard input until it ends."""
    end_with_parent(int(sys.argv[1]))
    # A native library that prints must not print into the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    messages = sys.stdin.buffer
    while line := messages.readline():
        facts = json.loads(line)
        try:
            answer = _answer(facts, messages.read(facts["audio_bytes"]))
        except BaseException as error:  # noqa: BLE001 - of a plug-in even sys.exit and a panic of a native library
            is_ours = isinstance(error, SpeechframeError)
            message = str(error) if is_ours else f"the recogniser failed: {type(error).__name__}: {error}"
            answer = {"error": message, "is_audio": isinstance(error, AudioError)}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


@cache
def _find_recogniser() -> Recogniser:
    if find_spec("jiwer") is None:
        raise EngineError(f"jiwer is not installed: {INSTALL_COMMAND}")
    return find_recogniser(*sys.argv[2:])


def _answer(facts: Mapping[str, Any], audio: bytes) -> dict[str, Any]:
    """Return the columns of a clip's row. Without facts of a clip, describe the recogniser."""
    recogniser = _find_recogniser()
    if "language" not in facts:
        return {"name": recogniser.name, "version": recogniser.version}
    recording, language, reference = _decode(facts, audio), facts["language"], facts["reference"]
    transcript = recogniser.recognise(recording, language=language, words=True)
    errors = (
        {} if reference is None else count_errors(reference, transcript.text, language or transcript.language)
    )
    return {
        "transcript": transcript.text,
        "transcript_words": [(word.word, word.start_ms, word.end_ms) for word in transcript.words],
        "language": transcript.language,
        "audio_seconds": recording.audio_seconds,
        **errors,
    }


def _decode(facts: Mapping[str, Any], audio: bytes) -> Recording:
    if facts["format"] is not None:
        # Audio of a run may have a raw format, which only its row names.
        kind = {"sample_rate_hz": facts["sample_rate"], "channels": facts["channels"]}
        decoded = codec.decode(audio, format=Format(facts["format"]), **kind)
        return Recording(mix_channels(decoded.samples), decoded.sample_rate_hz)
    with media.open_media(audio, max_seconds=math.inf) as opened:
        blocks = list(opened.blocks)
    return Recording(np.concatenate([np.zeros(0, np.float32), *blocks]), opened.sample_rate_hz)


if __name__ == "__main__":
    main()
