"""Bad input, and what it gets: a clear error before anything is spent, or a failed row alone."""

import socket
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import speechframe as spf
from speechframe.local import local_service
from speechframe.old_client import SyncClient

KEY = "a-secret-key-that-must-not-show"


@pytest.fixture
def generate(service, tmp_path):
    def call(table, **options):
        return spf.generate(
            table,
            **{
                "voice": "nora",
                "service": service,
                "progress": False,
                "run_dir": tmp_path / "run",
                **options,
            },
        )

    return call


@pytest.fixture
def spent(service):
    """What the key has spent since the test began."""

    def balance():
        with SyncClient(service.settings) as client:
            return client.limits()["remaining_characters"]

    before = balance()
    return lambda: before - balance()


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("table", "options", "field", "words"),
    [
        (pd.DataFrame({"text": ["a", None]}), {}, "text", "missing"),
        (pd.DataFrame({"text": ["a", float("nan")]}), {}, "text", "missing"),
        (pd.DataFrame({"text": ["a", pd.NA]}, dtype=object), {}, "text", "missing"),
        (["a", b"bytes"], {}, "text", "is bytes, not text"),
        (pd.DataFrame({"text": ["a"], "voice": [None]}), {"voice": spf.col("voice")}, "voice", "missing"),
        (["a"], {"voice": "en-US-nobody"}, "voice", "no known voice"),
        (["a"], {"locale": "xx-YY"}, "locale", "is not spoken by"),
        (["a"], {"style": "Shouting"}, "style", "no style of"),
        (["a"], {"rate": 51}, "rate", ""),
        (["a"], {"pitch": "high"}, "pitch", ""),
        (["a"], {"rate": float("inf")}, "rate", ""),
        (["x" * 10_000_000], {}, "text", "too long"),
        (["<speak>Hello</speak>"], {}, "text", "SSML"),
        (["a\0b"], {}, "text", "NUL"),
        (["[pause 1s]"], {}, "text", "only pauses"),
        (pd.DataFrame({"text": ["a", "b"]}, index=[1, 1]), {}, "id", "twice"),
        (["a"], {"take": -1}, "take", "is no take"),
        (["a"], {"take": 10**20}, "take", "is no take"),
        (["a"], {"take": 2**31}, "take", "is no take"),
        (["a"], {"take": [10**20]}, "take", "too large"),
        (pd.DataFrame({"text": [float("nan")]}), {"on_invalid": "skip"}, "text", "missing"),
        ([{"text": float("nan")}], {"on_invalid": "skip"}, "text", "missing"),
        (pd.DataFrame({"text": ["a"], "speech_arg_voice": ["x"]}), {"voice": ["nora"]}, "table", "needs for itself"),
        (pd.DataFrame({"text": ["a"], "speech_arg_take": [1]}), {}, "table", "needs for itself"),
        (["a"], {"pronunciation_dictionary": {"a": {"type": "GUESS", "pronunciation": "b"}}},
         "pronunciation_dictionary", ""),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)  # fmt: skip
def test_named_before_anything_is_spent(generate, spent, tmp_path, table, options, field, words):
    with pytest.raises(spf.InvalidRows) as caught:
        generate(table, **options)
    (found,) = caught.value.problems
    assert found["field"].partition(".")[0] == field
    assert words in found["problem"]
    assert len(str(caught.value)) < 2000
    assert spent() == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("voice", "text"),
    [
        ("nora", "Emoji 😀 in the middle 👍🏽."),
        ("ar-SA-layla", "مرحبا بالعالم."),
        ("nora", "The Arabic word مرحبا in English."),
        ("zh-CN-mei", "今天天气很好。"),
        ("nora", "a\u200bb\u00a0c\u2028d"),
        ("nora", "yes no " * 570),
        ("nora", "5 < 6 & 7 > 3"),
        ("nora", "[[h@'loU]] {name} %s"),
        ("nora", "tab\tand\r\nline break"),
        ("nora", "e\u0301" * 30),
    ],
    ids=[
        "emoji",
        "rtl",
        "mixed",
        "cjk",
        "odd-spaces",
        "long",
        "signs",
        "markup-like",
        "controls",
        "combining",
    ],
)
def test_unusual_text_is_spoken(generate, voice, text):
    run = generate([text, "A neighbour."], voice=[voice, "nora"])
    frame = run.to_pandas()
    assert frame["status"].tolist() == ["done", "done"], frame["error_message"].tolist()
    assert frame["audio_seconds"].min() > 0.2


def test_text_that_only_the_engine_can_refuse_fails_its_row_alone(generate, spent):
    run = generate(["A line.", "…!?", "Another line."])
    frame = run.to_pandas()
    assert frame["status"].tolist() == ["done", "failed", "done"]
    assert frame["error_status"][1] == 400
    assert "no character that a voice can speak" in frame["error_message"][1]
    assert spent() == len("A line.") + len("Another line.")


@pytest.mark.parametrize("wrap", [list, lambda rows: pd.DataFrame({"text": pd.Series(rows, dtype=object)})])
def test_lone_surrogates_are_refused(generate, spent, wrap):
    with pytest.raises(spf.InvalidRows) as caught:
        generate(wrap(["fine", "broken \ud800 text"]))
    (found,) = caught.value.problems
    assert (found["row"], found["field"]) == (1, "text")
    assert "half a character" in found["problem"]
    assert spent() == 0


def test_a_folder_with_other_files(generate, tmp_path, spent):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(spf.StoreError, match="holds other files"):
        generate(["a"])
    (tmp_path / "file").write_text("x")
    with pytest.raises(spf.StoreError, match="is a file"):
        generate(["a"], run_dir=tmp_path / "file")
    assert spent() == 0
    assert (tmp_path / "run" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("a\0b", "NUL"),
        ("~nosuchuser/x", "without ~"),
        (Path("s3://bucket/run"), "pass it as a string"),
    ],
)
def test_no_place_for_a_run(generate, spent, tmp_path, monkeypatch, place, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(spf.StoreError, match=words):
        generate(["a"], run_dir=place)
    assert spent() == 0
    assert not any(tmp_path.iterdir())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("place", [5, b"x", None, ["x"], "a\0b", "~nosuchuser/x", Path("s3://bucket/run")])
@pytest.mark.parametrize(
    "look",
    [spf.open_run, spf.resume, lambda place: spf.changes(place, ["a"])],
    ids=["open", "resume", "changes"],
)
def test_what_is_no_folder_of_a_run(look, place):
    with pytest.raises(spf.StoreError, match=r"no folder of a run|without ~|pass it as a string"):
        look(place)


def test_a_folder_may_be_called_as_an_address_begins(generate, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert generate(["a"], run_dir=tmp_path / "pilot:" / "run").stats["done"] == 1
    with pytest.raises(spf.StoreError, match="needs its absolute path"):
        spf.open_run("pilot:/run")


def test_a_folder_that_cannot_be_written(generate, spent):
    # /proc takes no folders, whoever asks.
    with pytest.raises(spf.StoreError, match="cannot be written"):
        generate(["a"], run_dir="/proc/speechframe/run")
    assert spent() == 0


def test_a_folder_of_another_operation(generate, tmp_path, spent):
    run = generate(["a"])
    manifest = run.path / "run.json"
    manifest.write_text(manifest.read_text().replace('"operation": "generate"', '"operation": "translate"'))
    before = spent()
    with pytest.raises(spf.RunMismatch, match="translate run"):
        generate(["a", "b"])
    with pytest.raises(spf.RunMismatch):
        spf.resume(run.path, progress=False)
    assert spent() == before


def test_a_folder_of_a_verb_that_this_version_does_not_know(generate, spent):
    run = generate(["a"])
    manifest = run.path / "run.json"
    manifest.write_text(manifest.read_text().replace('"operation": "generate"', '"operation": "whistle"'))
    before = spent()
    for look in (spf.resume, spf.changes):
        with pytest.raises(spf.RunMismatch, match=r"holds a whistle run; this version knows .*generate"):
            look(run.path, ["a", "b"], progress=False)
    assert spent() == before


def test_no_run_there(tmp_path):
    with pytest.raises(spf.NotARun):
        spf.open_run(tmp_path)
    with pytest.raises(spf.NotARun):
        spf.resume(tmp_path / "missing", progress=False)
    with pytest.raises(spf.NotARun):
        spf.changes(tmp_path / "missing", ["a"])


def test_full_disk_keeps_what_was_paid(service, tmp_path):
    # A limit on file size stands in for a full disk: writing fails in the same place, for any user.
    script = tmp_path / "full.py"
    script.write_text(
        "import os, resource, signal\n"
        "import speechframe as spf\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))\n"
        "try:\n"
        "    spf.generate([f'This is line number {i}.' for i in range(40)], voice='nora', run_dir='run', progress=False)\n"
        "except spf.StoreError as error:\n"
        "    print('STORE', error)\n"
    )
    environment = {
        "PATH": "/usr/bin:/bin", "SPEECHFRAME_BASE_URL": service.url,
        "SPEECHFRAME_API_KEY": service.api_key.get_secret_value(),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith("STORE"), done.stderr
    assert "run" in done.stdout
    kept = spf.resume(tmp_path / "run", service=service, progress=False)
    assert kept.stats["done"] == 40
    made_before = kept.estimate.finished
    assert made_before > 0
    repeats = len(kept.ledger) - 40
    # Only calls that were in flight when the disk was full are repeated, and the service bills no repeat.
    assert repeats <= 8 + 1


def test_no_key(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEECHFRAME_BASE_URL", "https://speech.example")
    with pytest.raises(spf.SettingsError, match="SPEECHFRAME_API_KEY"):
        spf.generate(["a"], voice="nora", run_dir=tmp_path / "run", progress=False)


def test_no_address(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEECHFRAME_API_KEY", KEY)
    with pytest.raises(spf.SettingsError, match="SPEECHFRAME_BASE_URL") as caught:
        spf.generate(["a"], voice="nora", run_dir=tmp_path / "run", progress=False)
    assert KEY not in str(caught.value)


def test_a_wrong_key(service, tmp_path):
    wrong = spf.Settings(base_url=service.url, api_key=KEY)
    with pytest.raises(spf.PermissionDenied) as caught:
        spf.generate(["a"], voice="nora", service=wrong, run_dir=tmp_path / "run", progress=False)
    assert caught.value.status == 403
    assert KEY not in str(caught.value) + repr(caught.value)
    assert not (tmp_path / "run").exists()


def test_plain_http_to_another_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEECHFRAME_API_KEY", KEY)
    monkeypatch.setenv("SPEECHFRAME_BASE_URL", "http://speech.example")
    with pytest.raises(spf.SettingsError, match="plain http"):
        spf.generate(["a"], voice="nora", run_dir=tmp_path / "run", progress=False)


def test_no_service_at_the_address(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nowhere = spf.Settings(base_url=f"http://127.0.0.1:{port}", api_key=KEY)
    with pytest.raises(spf.ConnectionFailed, match=f"127.0.0.1:{port}") as caught:
        spf.generate(["a"], voice="nora", service=nowhere, run_dir=tmp_path / "run", progress=False)
    assert caught.value.sent is False


def test_a_port_in_use(service, tmp_path):
    port = service.url.rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-m", "speechframe.service", "--port", port, "--data", tmp_path / "data"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert port in done.stderr
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_service_object(tmp_path):
    with pytest.raises(spf.SettingsError, match="is no service"):
        spf.generate(["a"], voice="nora", service="http://127.0.0.1", run_dir=tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_concurrency": 0}, "at least 1"),
        ({"max_concurrency": True}, "at least 1"),
        ({"max_credits": -1}, "at least 0"),
        ({"on_error": "ignore"}, "column, raise"),
        ({"tags": "one"}, "list of strings"),
        ({"tags": 5}, "list of strings"),
        ({"max_attempts": np.float64(2)}, "a whole number"),
        ({"max_credits": 1e308}, "at most 1,000,000,000,000,000 credits, inf for no limit"),
        ({"max_credits": 10**400}, "inf for no limit"),
        ({"max_credits": Fraction(10**400)}, "too large; allowed: a number .*, inf for no limit"),
        ({"max_credits": Decimal("1E+400")}, "too large; allowed: a number .*, inf for no limit"),
        ({"max_credits": Decimal(-1)}, "at least 0"),
        ({"max_credits": Decimal("sNaN")}, "at least 0"),
        ({"max_concurrency": Decimal(4)}, "a whole number"),
        ({"timeout_s": 10**400}, "a number"),
        ({"tags": ["\ud800"]}, "list of strings"),
        ({"id": ["text"]}, "the name of a column"),
        ({"id": pd.Series(["a"])}, "the name of a column"),
        ({"run_dir": 5}, "run_dir=5; allowed: a folder, or the address of one"),
        ({"run_dir": b"x"}, "run_dir=b'x'; allowed: a folder"),
        ({"cache": 5}, "a folder, True or False"),
        ({"cache": "s3://bucket/calls"}, "a path of this machine"),
        ({"cache": Path("s3://bucket/calls")}, "is an address; allowed: a path of this machine"),
        ({"cache": "a\0b"}, "NUL"),
        ({"cache": "~nosuchuser/calls"}, "without ~"),
        ({"speed": 3}, r"no argument 'speed'; it takes text, voice, .*rate"),
    ],
)
def test_options(generate, spent, options, words):
    with pytest.raises((spf.SettingsError, TypeError), match=words):
        generate(["a"], **options)
    assert spent() == 0


def test_numbers_of_numpy_are_numbers(generate):
    # As the sum of a column is.
    run = generate(["a"], max_credits=np.int64(100), max_concurrency=np.uint8(3), patience_s=np.float32(60))
    assert run.stats["done"] == 1


def test_tags_are_taken_from_any_collection(generate):
    run = generate(["a"], tags=(tag for tag in ["x", "y"]))
    assert run.ledger["tags"][0].tolist() == ["x", "y"]


def test_local_extra_data_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(spf.SettingsError), local_service(data=tmp_path / "file"):
        pass


@pytest.mark.parametrize(
    "table",
    [[], {"text": []}, pd.DataFrame({"text": []}), pd.DataFrame({"text": [], "n": []}), pd.Series([], dtype=float)],
    ids=["list", "mapping", "frame", "two columns", "series"],
)  # fmt: skip
def test_an_empty_table(generate, spent, table):
    run = generate(table)
    assert run.stats["rows"] == 0
    assert run.to_pandas().empty
    assert spf.resume(run, progress=False).stats["rows"] == 0
    assert spent() == 0


def test_numbers_are_no_text_and_a_column_of_gaps_that_no_argument_names_keeps_its_type(generate):
    with pytest.raises(spf.InvalidRows, match="column 'text' is double, not text"):
        generate(pd.DataFrame({"text": [1.5]}))
    run = generate(pd.DataFrame({"text": ["a"], "score": [float("nan")]}))
    assert run.to_pandas()["score"].dtype == float
