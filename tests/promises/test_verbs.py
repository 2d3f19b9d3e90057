"""Translation, voice change and streamed rows keep the promises that speaking keeps; on the local service."""

import os
import subprocess
import sys

import pandas as pd
import pytest
import soundfile as sf
from accounts import statuses

import speechframe as spf
from speechframe.spec.texts import count_billed_characters

RATE_HZ = 24000


@pytest.fixture(scope="module")
def clips(service, tmp_path_factory):
    """Return a folder with three spoken clips."""
    folder = tmp_path_factory.mktemp("clips")
    for number, line in enumerate(["Good morning.", "How are you?", "See you soon."]):
        clip = spf.say(line, voice="en-US-hank", sample_rate=RATE_HZ, service=service.settings)
        sf.write(folder / f"{number}.wav", clip.samples, RATE_HZ)
    return folder


@pytest.fixture
def translate(service, tmp_path):
    def call(table, **options):
        fixed = {"targets": ["pt-BR"], "run_dir": tmp_path / "translated", "progress": False}
        return spf.translate(table, service=service.settings, **fixed | options)

    return call


@pytest.fixture
def change(service, tmp_path):
    def call(table, **options):
        fixed = {"voice": "en-US-nora", "run_dir": tmp_path / "changed", "progress": False}
        return spf.change_voice(table, service=service.settings, **fixed | options)

    return call


def test_texts_are_translated_in_packs_and_placeholders_come_back(translate):
    texts = ["Hello {name}, your order has been shipped.", "Click <b>here</b> to reset %(n)d passwords."] * 2
    run = translate(pd.DataFrame({"id": list("abcd"), "text": texts}), id="id")
    frame = run.to_pandas()
    assert list(frame["status"]) == ["done"] * 4
    assert list(frame["placeholders_ok"]) == [True] * 4
    assert "{name}" in frame["translated_text"][0]
    assert frame["translated_text"][0] == frame["translated_text"][2] != texts[0]
    # Equal texts are paid once, and all of them went in one call.
    assert len(set(run.ledger["trace_id"])) == 1
    assert run.ledger["credits"].sum() <= sum(map(count_billed_characters, set(texts)))
    again = translate(pd.DataFrame({"id": list("abcd"), "text": texts}), id="id")
    assert again.estimate.calls == 0


def test_numbers_are_counted_by_what_they_say(translate):
    frame = translate(["A reunião começa às 18h."], targets=["en-US"]).to_pandas()
    assert "6" in frame["translated_text"][0]
    assert frame["placeholders_ok"][0]


def test_branches_of_a_plural_that_were_not_translated_are_told(translate):
    frame = translate(["{count, plural, one {# new message} other {# new messages}} arrived."]).to_pandas()
    assert "new message" in frame["translated_text"][0]
    assert not frame["placeholders_ok"][0]


def test_a_glossary_is_kept_to_and_its_misses_are_told(translate):
    terms = [("order", "encomenda"), ("morning", "alvorada")]
    glossary = pd.DataFrame(
        [(source, "pt-BR", target) for source, target in terms], columns=["source", "locale", "target"]
    )
    frame = translate(["Your order has been shipped.", "Good morning."], glossary=glossary).to_pandas()
    kept = [
        target in text.casefold() for (_, target), text in zip(terms, frame["translated_text"], strict=True)
    ]
    assert list(frame["glossary_ok"]) == kept


def test_a_language_that_the_service_does_not_have_is_found_before_anything_is_sent(translate, tmp_path):
    with pytest.raises(spf.InvalidRows, match="tlh"):
        translate(["Good morning."], targets=["pt-BR", "tlh"])
    assert not (tmp_path / "translated").exists()


def test_a_translated_run_is_spoken(translate, service, tmp_path):
    translated = translate(
        pd.DataFrame({"id": ["a", "b"], "text": ["Good morning.", "Good night."]}), id="id"
    )
    spoken = spf.generate(
        translated, text="translated_text", locale=spf.col("locale"), voice="larissa", progress=False,
        run_dir=tmp_path / "spoken", service=service.settings,
    )  # fmt: skip
    assert statuses(spoken) == ["done", "done"]


def test_a_run_of_two_targets_brings_row_ids_of_its_own(translate, service, tmp_path):
    table = pd.DataFrame({"id": ["greeting"], "text": ["Good morning."]})
    translated = translate(table, id="id", targets=["pt-BR", "en-GB"], on_invalid="skip")
    spoken = spf.generate(
        translated, text="translated_text", voice="nora", progress=False, run_dir=tmp_path / "spoken",
        service=service.settings, dry_run=True,
    )  # fmt: skip
    assert list(spoken.to_pandas()["row_id"]) == ["greeting/pt-BR", "greeting/en-GB"]


@pytest.mark.parametrize("kind", ["paths", "folder", "bytes", "arrays", "run"])
def test_clips_of_every_kind_get_another_voice(change, clips, kind, service, tmp_path):
    paths = sorted(clips.glob("*.wav"))
    samples = [sf.read(path, dtype="float32")[0] for path in paths]
    table = {
        "paths": lambda: [str(path) for path in paths],
        "folder": lambda: str(clips),
        "bytes": lambda: pd.DataFrame({"audio": [path.read_bytes() for path in paths]}),
        "arrays": lambda: pd.DataFrame({"audio": [{"array": s, "sampling_rate": RATE_HZ} for s in samples]}),
        "run": lambda: spf.generate(
            ["One line.", "Two lines.", "Three lines."], voice="en-US-hank", sample_rate=RATE_HZ, progress=False,
            run_dir=tmp_path / "spoken", service=service.settings,
        ),
    }[kind]()  # fmt: skip
    run = change(table)
    assert statuses(run) == ["done"] * 3
    if kind != "run":
        ids = [path.name for path in paths] if kind == "folder" else range(3)
        for row_id, given in zip(ids, samples, strict=True):
            assert run.clip(row_id).audio_seconds == pytest.approx(len(given) / RATE_HZ, rel=0.1)
    assert run.ledger["credits"].sum() > 0
    assert change(table).estimate.calls == 0


def test_a_clip_that_is_none_is_found_before_anything_is_spent(change, clips):
    paths = [*sorted(clips.glob("*.wav")), clips / "gone.wav"]
    with pytest.raises(spf.InvalidRows):
        change([str(path) for path in paths])
    run = change([str(path) for path in paths], on_invalid="skip")
    assert statuses(run) == ["done"] * 3 + ["invalid"]


def test_a_clip_that_changed_since_it_was_looked_at_is_not_sent(change, clips, service, tmp_path):
    paths = [tmp_path / path.name for path in sorted(clips.glob("*.wav"))]
    for path in paths:
        path.write_bytes((clips / path.name).read_bytes())
    planned = change([str(path) for path in paths], dry_run=True)
    samples, rate_hz = sf.read(paths[1])
    sf.write(paths[1], samples[: len(samples) // 2], rate_hz)
    run = spf.resume(planned, service=service.settings, progress=False)
    assert statuses(run) == ["done", "failed", "done"]
    assert "changed" in run.failed["error_message"].iloc[0]


PIPE = """
import sys
import pandas as pd
import speechframe as spf
url, key, profile, pipe, folder = sys.argv[1:]
try:
    spf.change_voice(pd.DataFrame({"audio": [{"bytes": None, "path": pipe}]}), voice="en-US-nora", run_dir=folder,
                     progress=False, service=spf.Settings(base_url=url, api_key=key, profile=profile or None))
except spf.InvalidRows as refused:
    print(refused)
"""


@pytest.mark.slow
def test_clips_are_regular_files(service, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    settings = service.settings
    command = [sys.executable, "-c", PIPE, settings.base_url, settings.api_key.get_secret_value(),
               settings.profile or "", str(tmp_path / "pipe"), str(tmp_path / "run")]  # fmt: skip
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=25, check=True).stdout
    except subprocess.TimeoutExpired:
        said = "it waits for the pipe"
    assert "regular file" in said
