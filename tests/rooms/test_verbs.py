"""Rows become requests of `generate` and `change_voice`: one for each different call, or what is wrong with it."""

import asyncio
import http.server
import inspect
import json
import os
import socket
import threading
from functools import partial

import numpy as np
import pandas as pd
import pytest
import soundfile

import speechframe as spf
from speechframe.testing import FaultyService, tag_in, tag_of
from speechframe.verbs import change_voice as change_voice_verb
from speechframe.verbs import generate as generate_verb

RATE_HZ = 8000
TONE = (np.sin(np.arange(2 * RATE_HZ) / 5) * 9000).astype(np.int16)


@pytest.fixture(scope="module")
def faulty():
    with FaultyService() as running:
        yield running


@pytest.fixture
def generate(faulty, tmp_path):
    def call(table, **options):
        given = {"voice": "nora", "run_dir": tmp_path / "run", "progress": False, "service": faulty.settings}
        return spf.generate(table, **given | options)

    return call


def test_each_row_says_its_own_text_whatever_stands_beside_it(generate, faulty):
    texts = ['"text":"x"', "\\ud83d \\n {0} %s", "tab\tand\u2028lines\nmore", "💬 a", "null 1", "Hi.", "Hi. "]
    table = pd.DataFrame(
        {"text": texts, "style": ["Narration", None, "Conversational", "Narration", None, None, "Narration"]}
    )
    said = {"text": {"type": "IPA", "pronunciation": '"text":"x"'}}
    run = generate(table, style=spf.col("style"), pronunciation_dictionary=said, pitch=[*range(-3, 4)])
    for row in run.to_pandas(audio=True).itertuples():
        assert (row.status, row.text) == ("done", texts[row.Index])
        assert tag_in(row.audio["bytes"]) == tag_of(row.text)
    again = pd.concat([table.iloc[[1]], table.iloc[[3]]])
    assert (
        generate(again, style=spf.col("style"), pronunciation_dictionary=said, pitch=[-2, 0]).estimate.calls
        == 0
    )


@pytest.mark.parametrize("verb", [generate_verb, change_voice_verb])
def test_every_argument_of_a_verb_reaches_its_run(verb, monkeypatch):
    handed_on = []

    async def make(backend, table, arguments, options):
        handed_on.append(dict(arguments))

    monkeypatch.setattr(verb, "make_run", make)
    function = getattr(verb, verb.__name__.rpartition(".")[2])
    parameters = inspect.signature(function).parameters.values()
    # Other tests hand on sheets, which are read first.
    read = {"fill", "pronunciations", "cast", "slot", "is_fitted", "lock"}
    given = {p.name: f"the {p.name}" for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in read}
    asyncio.run(function([], **given, service=spf.Settings()))
    assert [{name: one for name, one in found.items() if name not in read} for found in handed_on] == [given]


def test_everything_that_is_wrong_with_a_row_is_said_by_argument(generate):
    rows = [
        {"text": "...", "voice": "nora"},
        {"text": "\u200b\u200b", "voice": "norra"},
        {"text": "Hi", "voice": "nora", "pitch": 70, "style": "shouting"},
        {"text": "Hi", "voice": "nora", "model": "falcon-2"},
        {"text": "Hi", "voice": "nora"},
    ]
    names = ("voice", "pitch", "style", "model")
    with pytest.raises(spf.InvalidRows) as refused:
        generate(pd.DataFrame(rows), **{name: spf.col(name) for name in names})
    said = {(line["row_id"], line["field"]): str(line) for line in refused.value.problems}
    for place, words in {
        ("0", "text"): "nothing to speak", ("1", "text"): "nothing to speak", ("1", "voice"): "nearest: nora",
        ("2", "pitch"): "50", ("2", "style"): "shouting", ("3", "model"): "falcon-2 for the whole table",
    }.items():  # fmt: skip
        assert words in said[place]
    assert {row for row, _ in said} == set("0123")


@pytest.fixture
def web(tmp_path):
    """Return the address of a server of the files in `tmp_path`."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_audio_behind_an_address_is_noted_and_fetched_again_without_another_call(
    generate, faulty, web, tmp_path
):
    text = "One line behind an address."
    run = generate([text])
    audio = run.clip(0).audio
    line = f"{text} Again."
    faulty.set(odd={line: {"encodedAudio": '""', "audioFile": json.dumps(f"{web}/late.flac")}})
    run = generate([line], run_dir=tmp_path / "late", max_attempts=1)
    before = faulty.books().billed[tag_of(line)]
    (tmp_path / "late.flac").write_bytes(audio)
    run = spf.resume(run, on_unknown="retry", service=faulty.settings, progress=False)
    assert run.clip(0).audio == audio
    assert faulty.books().billed[tag_of(line)] == before


def test_audio_behind_a_path_is_fetched_from_the_region_that_answered(generate, faulty, tmp_path):
    text, path = "One line behind a path.", "/audio/WAV-44100-1-66150-3-00000000000000ff-0"
    faulty.set(odd={text: {"encodedAudio": '""', "audioFile": json.dumps(path)}})
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and nobody listens
        addresses = {"us-east": f"http://127.0.0.1:{silent.getsockname()[1]}", "uk": faulty.url}
        settings = spf.Settings(api_key=faulty.api_key, regions=tuple(addresses), region_urls=addresses)
        run = generate([text], service=settings, truth_checks=False)
    row = run.to_pandas().iloc[0]
    assert (row.status, row.lane, row.audio_seconds) == ("done", "uk", 1.5)


@pytest.fixture
def clip(tmp_path):
    path = tmp_path / "clip.wav"
    soundfile.write(path, TONE, RATE_HZ, subtype="PCM_16")
    return path


def change(service, tmp_path, clips):
    return spf.change_voice(
        clips, voice="nora", service=service.settings, run_dir=tmp_path / "run", dry_run=True, progress=False
    )


def test_the_same_clip_is_one_call_wherever_it_lies(service, clip, web, tmp_path):
    data, (samples, _) = clip.read_bytes(), soundfile.read(clip, dtype="int16")
    clips = [str(clip), {"bytes": None, "path": str(clip)}, data, {"bytes": data}, f"{web}/clip.wav",
             {"array": samples, "sampling_rate": RATE_HZ}, (samples, RATE_HZ)]  # fmt: skip
    run = change(service, tmp_path, clips)
    assert (run.estimate.rows, run.estimate.calls, run.estimate.credits) == (7, 1, 30)
    assert [path.read_bytes() for path in (run.path / "clips").iterdir()] == [data]


def test_an_address_without_a_clip_is_asked_once_for_all_its_rows(service, web, tmp_path, monkeypatch):
    asked = []

    def gone(request):
        asked.append(request.path)
        request.send_error(404)

    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "do_GET", gone)
    with pytest.raises(spf.InvalidRows, match="answered 404") as refused:
        change(service, tmp_path, [f"{web}/gone.wav"] * 3)
    assert (len(refused.value.problems), asked) == (3, ["/gone.wav"])


def test_what_is_no_clip_is_found_before_anything_is_spent(service, clip, web, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    bad = {
        str(tmp_path / "pipe"): "regular file", "/dev/zero": "regular file", str(tmp_path): "folder",
        "gone.wav": "does not exist", b"text": "no audio", 3: "int", f"{web}/gone.wav": "answered 404",
        "ftp://x/y": "not supported",
    }  # fmt: skip
    with pytest.raises(spf.InvalidRows) as refused:
        change(service, tmp_path, list(bad))
    for line, words in zip(refused.value.problems, bad.values(), strict=True):
        assert (line["field"], words in str(line)) == ("audio", True)
