"""Folders and plug-ins of which some things cannot be used, as they are found on real machines."""

import json
import os
import shutil
from pathlib import Path

import numpy as np

from speechframe.local.engines import models

PUBLIC_STYLES = [
    "af_alloy",
    "af_aoede",
    "af_bella",
    "af_heart",
    "af_jessica",
    "af_kore",
    "af_nicole",
    "af_nova",
    "af_river",
    "af_sarah",
    "af_sky",
    "am_adam",
    "am_echo",
    "am_eric",
    "am_fenrir",
    "am_liam",
    "am_michael",
    "am_onyx",
    "am_puck",
    "am_santa",
    "bf_alice",
    "bf_emma",
    "bf_isabella",
    "bf_lily",
    "bm_daniel",
    "bm_fable",
    "bm_george",
    "bm_lewis",
    "ef_dora",
    "em_alex",
    "em_santa",
    "ff_siwis",
    "hf_alpha",
    "hf_beta",
    "hm_omega",
    "hm_psi",
    "if_sara",
    "im_nicola",
    "jf_alpha",
    "jf_gongitsune",
    "jf_nezumi",
    "jf_tebukuro",
    "jm_kumo",
    "pf_dora",
    "pm_alex",
    "pm_santa",
    "zf_xiaobei",
    "zf_xiaoni",
    "zf_xiaoxiao",
    "zf_xiaoyi",
    "zm_yunjian",
    "zm_yunxi",
    "zm_yunxia",
    "zm_yunyang",
]
"""The 54 styles that Kokoro is published with."""
CHINESE = [name for name in PUBLIC_STYLES if name.startswith("z")]
SHAPE = (510, 256)


def public_styles(folder):
    """Fill a folder with styles of the public names; each is one of the packaged style."""
    first = folder / f"{PUBLIC_STYLES[0]}.bin"
    packaged_style().astype("<f4").tofile(first)
    for name in PUBLIC_STYLES[1:]:
        os.link(first, folder / f"{name}.bin")


def packaged_style():
    return np.load(models.KOKORO_STYLES.get_file("data/voices_ja.npz"))["jm_kumo"]


def odd_files(folder):
    """Put files and other entries into a folder that are no voices; returns their names."""
    (folder / "af_empty.npz").touch()
    (folder / "af_empty.bin").touch()
    (folder / "af_text.bin").write_bytes(b"<html>not found</html>")
    whole = np.zeros(SHAPE, "<f4").tobytes()
    (folder / "af_cut.bin").write_bytes(whole[:-1000])
    (folder / "af_nan.bin").write_bytes(np.full(SHAPE, np.nan, "<f4").tobytes())
    np.savez(folder / "words.npz", af_words=np.full(SHAPE, "hello"))
    np.savez(folder / "objects.npz", af_objects=np.array([{}, None], object))
    np.savez(folder / "shape.npz", af_shape=np.zeros((3, 256), np.float32))
    np.savez_compressed(folder / "bomb.npz", af_bomb=np.zeros((1 << 22,), np.float32))
    (folder / "am_folder.bin").mkdir()
    (folder / "am_gone.bin").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "am_pipe.npz")
    (folder / "kokoro-v9.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    model, settings = (models.JOE_VOICE.folder / name for name in models.JOE_VOICE.sha256)
    told = json.loads(settings.read_text("utf-8"))
    broken = {
        "list": "[]",
        "deep": "[" * 100_000,
        "binary": b"\xff\xfe\x00",
        "rateless": json.dumps(told | {"audio": {"sample_rate": "high"}}),
        "symbolless": json.dumps(told | {"phoneme_id_map": {"a": 3}}),
        "pinyin": json.dumps(told | {"phoneme_type": "pinyin"}),
        "nowhere": json.dumps(told | {"language": {"code": 7}}),
        "scaleless": json.dumps(told | {"inference": "none"}),
    }
    for name, content in broken.items():
        os.link(model, folder / f"{name}.onnx") if _same_disk(model, folder) else shutil.copy(
            model, folder / f"{name}.onnx"
        )
        (folder / f"{name}.onnx.json").write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )
    for name, content in {"cut": model.read_bytes()[:-1000], "void": b"", "page": b"<html>"}.items():
        (folder / f"{name}.onnx").write_bytes(content)
        shutil.copy(settings, folder / f"{name}.onnx.json")
    (folder / "alone.onnx").write_bytes(b"")
    shutil.copy(model, folder / "pipe.onnx")
    os.mkfifo(folder / "pipe.onnx.json")
    return [
        path.name
        for path in folder.iterdir()
        if path.name.endswith((".onnx", ".npz", ".bin")) and path.stem not in PUBLIC_STYLES
    ]


def _same_disk(one, other):
    return one.stat().st_dev == other.stat().st_dev


PLUG_IN = """
import sys
import numpy as np
from speechframe.engines.base import Capabilities, EngineVoice, Quality, Speech, TranslationPair, Word
from speechframe.errors import EngineError, EngineFault
from speechframe.spec.speech import Gender, Model, StyleDetails

LOCALES = {"en-US": StyleDetails(available_styles=["Plain"], detail="English")}


def voice(voice_id="en-US-hum", locale="en-US", locales=LOCALES, models=frozenset({Model.GEN2}), **other):
    return EngineVoice(voice_id, "Hum", "A tone.", Gender.NON_BINARY, locale, locales, models, **other)


class Good:
    name = "good"
    version = "1"
    capabilities = Capabilities()

    def voices(self):
        return [
            voice(), None, voice("hum"), voice("en-US-x", locale="en-GB"), voice("en-US-y", locales={}),
            voice("en-US-z", locales={"en-US": "Plain"}), voice("en-US-v", models={"gen9"}),
            voice("en-US-HUM"), voice("en-US-nora"), voice("en-US-w", locales={7: 8, **LOCALES}),
            voice("tlhh-QQQQ-u", locale="tlhh-QQQQ", locales={"tlhh-QQQQ": LOCALES["en-US"]}),
        ]

    def speak(self, utterance):
        if utterance.text == "path":
            raise EngineError(f"the file {__file__} cannot be read")
        if utterance.text == "fault":
            raise EngineFault(f"the file {__file__} cannot be read")
        if utterance.text == "exit":
            sys.exit(3)
        if utterance.text == "numbers":
            return Speech(np.zeros(2205, np.float32), np.int64(22050), (), (7,))
        return Speech(np.full(2205, 0.5, np.float32), 22050, (Word("w", 0, 100),))


class Refusing(Good):
    def __init__(self):
        raise RuntimeError("model file not found")


class Leaving(Good):
    def __init__(self):
        sys.exit(0)


class Voiceless(Good):
    def voices(self):
        return None


class Raising(Good):
    def voices(self):
        raise OSError("disk gone")


class Incapable(Good):
    capabilities = "all"


class Broken(Good):
    @property
    def capabilities(self):
        raise LookupError("no idea")


class Versionless(Good):
    version = None


class Exploding(Good):
    @property
    def version(self):
        raise ZeroDivisionError("boom")


class Streaming(Good):
    capabilities = Capabilities(streaming=True)


class Words:
    name = "words"
    version = "1"

    def pairs(self):
        return [
            TranslationPair("en", "gl", Quality.RULES), ("en", "pt"), TranslationPair("no such", "en", Quality.RULES),
            TranslationPair("en", None, Quality.RULES), TranslationPair("en", "de", "best"),
        ]

    def translate(self, texts, pair):
        raise EngineFault(f"the tables in {__file__} are broken")


class Pairless(Words):
    def pairs(self):
        return 7


class Ear:
    name = "ear"
    version = 7

    def recognise(self, recording, *, language=None, words=False):
        raise OSError("no model")
"""

POINTS = """
[speechframe.speakers]
absent = odd_speech:Absent
espeak = odd_speech:Good
broken = odd_speech:Broken
exploding = odd_speech:Exploding
good = odd_speech:Good
incapable = odd_speech:Incapable
leaving = odd_speech:Leaving
nameless = odd_speech
quitting = odd_speech_exit:Anything
raising = odd_speech:Raising
refusing = odd_speech:Refusing
streaming = odd_speech:Streaming
versionless = odd_speech:Versionless
voiceless = odd_speech:Voiceless

[speechframe.translators]
pairless = odd_speech:Pairless
words = odd_speech:Words

[speechframe.recognisers]
ear = odd_speech:Ear
"""
BROKEN = [
    "speaker absent", "speaker broken", "speaker exploding", "speaker incapable", "speaker leaving",
    "speaker nameless", "speaker quitting", "speaker raising", "speaker refusing", "speaker streaming",
    "speaker versionless", "speaker voiceless", "translator pairless", "recogniser ear",
]  # fmt: skip
"""What cannot be used of the plug-in, by kind and name."""


def install_odd(folder):
    """Put a package into `folder` with good and broken engines, as PYTHONPATH makes known."""
    info = Path(folder) / "odd_speech-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "odd_speech.py").write_text(PLUG_IN, encoding="utf-8")
    (folder / "odd_speech_exit.py").write_text("raise SystemExit(4)\n", encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-speech\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS, encoding="utf-8")
    return str(folder)
