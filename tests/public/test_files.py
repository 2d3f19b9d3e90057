"""No file whose name is chosen here replaces another one; a file that is named exactly is replaced."""

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
from tests.promises.dub_service import DUB, DubService

from speechframe.audio.saving import save_audio
from speechframe.cli.app import main
from speechframe.errors import AnalysisError
from speechframe.spec.speech import Format
from speechframe.spending.report import report

SHAPE = {"format": Format.PCM, "sample_rate_hz": 8000, "channels": 1}


def test_audio_without_an_ending_gets_a_name_that_is_free(tmp_path):
    mine = tmp_path / "take.pcm"
    mine.write_bytes(b"mine")
    first = save_audio(tmp_path / "take", b"one", **SHAPE)
    second = save_audio(tmp_path / "take", b"two", **SHAPE)
    assert mine.read_bytes() == b"mine"
    assert (first.read_bytes(), second.read_bytes()) == (b"one", b"two")
    # The same once more is there already; a name with its ending says which file is meant.
    assert save_audio(tmp_path / "take", b"two", **SHAPE) == second
    assert save_audio(mine, b"three", **SHAPE).read_bytes() == b"three"


@pytest.fixture
def dubbed(tmp_path, monkeypatch):
    """Dub media with the command, and return the folder that they are copied into."""
    service = DubService(statuses=["COMPLETED"])
    service.up()
    monkeypatch.setenv("SPEECHFRAME_BASE_URL", service.settings.base_url)
    monkeypatch.setenv("SPEECHFRAME_API_KEY", service.settings.api_key.get_secret_value())
    monkeypatch.chdir(tmp_path)

    def dub(frame):
        frame.to_csv("media.csv", index=False)
        words = ("--targets", "pt-BR", "--id", "id", "--run-dir", "run", "--out", "out")
        assert main(["dub", "media.csv", *words]) == 0
        return tmp_path / "out"

    yield dub
    service.down()


def test_dubs_of_media_with_one_name_are_two_files_and_lie_in_their_folder(dubbed, tmp_path):
    long = "film " * 48
    for seed, name in enumerate(("a/intro.wav", "b/intro.wav", f"a/{long}.wav")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        sf.write(tmp_path / name, np.random.default_rng(seed).uniform(-0.1, 0.1, 800), 8000)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/intro.pt-BR.srt").write_text("mine")
    media = ["a/intro.wav", "b/intro.wav", f"a/{long}.wav"]
    out = dubbed(pd.DataFrame({"id": ["one", "../../two", "three"], "media": media}))
    names = sorted(path.name for path in out.iterdir())
    assert (out / "intro.pt-BR.srt").read_text() == "mine"
    assert len(names) == 7
    assert {name for name in names if name.startswith("intro")} == {
        "intro.pt-BR.srt", "intro-2.pt-BR.mp4", "intro-2.pt-BR.srt", "intro-3.pt-BR.mp4", "intro-3.pt-BR.srt",
    }  # fmt: skip
    assert len({path.read_bytes() for path in out.glob("*.mp4")}) == 3
    assert all(path.read_bytes().startswith(DUB) for path in out.glob("*.mp4"))
    # The same command once more finds its files, and makes no others.
    dubbed(pd.DataFrame({"id": ["one", "../../two", "three"], "media": media}))
    assert sorted(path.name for path in out.iterdir()) == names


def test_a_report_leaves_a_table_of_the_user_alone(tmp_path):
    bill = tmp_path / "november.csv"
    bill.write_text("date,credits\n2026-11-01,5\n")
    with pytest.raises(AnalysisError, match=r"november\.csv"):
        report(tmp_path / "november.html")
    assert bill.read_text().startswith("date,credits\n")
    bill.unlink()
    page = report(tmp_path / "november.html")
    assert report(tmp_path / "november.html") == page
