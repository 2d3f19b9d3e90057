"""run.json: whole or not there, readable by its neighbours in time, never with a key."""

import json
import os

import pytest
from store_cases import manifest

from speechframe.errors import NotARun, RunMismatch, StoreError
from speechframe.old_store import LAYOUT, RunFolder, RunManifest, TableEntry

FULL = RunManifest(
    run_id="run-1",
    operation="generate",
    created_at="2030-01-02T03:04:05+00:00",
    speechframe_version="1.2.3",
    options={"voice": "en-US-nora", "pitch": 3, "tags": ["a"], "text": "naïve 👋 \ud800"},
    service="local/espeak-1",
    local=True,
    key_fingerprint="fp",
    catalogue_hash="ch",
    audio_format="FLAC",
    column_map={"text": "speech_text"},
    tables=(TableEntry("input/0001.parquet", 3, "2030", "id", {"text": "speech_text"}, ("speech_cost",)),),
)


def test_every_field_comes_back(tmp_path):
    RunFolder.create(tmp_path / "run", FULL)
    assert RunFolder.open(tmp_path / "run").manifest == FULL
    assert RunFolder.exists(tmp_path / "run")
    assert not RunFolder.exists(tmp_path)


def test_the_layout_stands_first(run):
    assert (run.path / "run.json").read_text().startswith(f'{{\n  "layout": {LAYOUT},')


def test_keys_of_a_later_version_are_kept(run):
    content = json.loads((run.path / "run.json").read_text())
    content["colour"] = {"of": "magic"}
    content["tables"] = [{**FULL.tables[0].to_json(), "smell": 1}]
    (run.path / "run.json").write_text(json.dumps(content))
    reopened = RunFolder.open(run.path)
    with reopened.lock():
        reopened.update_manifest(audio_format="WAV")
    content = json.loads((run.path / "run.json").read_text())
    assert content["colour"] == {"of": "magic"}
    assert content["audio_format"] == "WAV"
    assert reopened.manifest.tables == FULL.tables


def test_a_newer_layout_is_refused_by_both_numbers(run):
    content = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**content, "layout": 7, "speechframe_version": "9.1"}))
    with pytest.raises(RunMismatch, match=rf"layout 7 \(speechframe 9.1\).*up to {LAYOUT}.*upgrade"):
        RunFolder.open(run.path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"layout": 1}', b'{"layout": 1, "tables": 3}'])
def test_a_damaged_run_json_says_which_file(run, content):
    (run.path / "run.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"run\.json is damaged"):
        RunFolder.open(run.path)


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"layout": "one"}'])
def test_another_tools_run_json_is_no_run(run, content):
    (run.path / "run.json").write_bytes(content)
    with pytest.raises(NotARun, match="layout"):
        RunFolder.open(run.path)


def test_a_folder_without_a_run_says_so(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotARun, match="no run folder"):
            RunFolder.open(path)
    (tmp_path / "file").touch()
    with pytest.raises(NotARun):
        RunFolder.open(tmp_path / "file")


def test_a_second_run_does_not_replace_the_first(run):
    with pytest.raises(StoreError, match="holds a run already"):
        RunFolder.create(run.path, manifest())


def test_a_replacement_that_fails_leaves_the_old_manifest(run, monkeypatch):
    def refused(*_):
        raise OSError(5, "Input/output error")

    before = (run.path / "run.json").read_bytes()
    with run.lock():
        monkeypatch.setattr(os, "replace", refused)
        with pytest.raises(StoreError, match=r"writing run\.json failed"):
            run.update_manifest(audio_format="WAV")
        monkeypatch.undo()
    assert (run.path / "run.json").read_bytes() == before
    assert run.manifest.audio_format is None


def test_the_new_manifest_is_on_the_disk_before_it_has_its_name(run, monkeypatch):
    order = []
    with run.lock():
        for name in ("fsync", "replace"):
            real = getattr(os, name)
            monkeypatch.setattr(os, name, lambda *a, real=real, name=name: (order.append(name), real(*a))[1])
        run.update_manifest(audio_format="WAV")
        monkeypatch.undo()
    assert order == ["fsync", "replace", "fsync"]


@pytest.mark.parametrize(
    "options", [{"api_key": "k"}, {"client": {"token": "k"}}, {"calls": [{"api-key": "k"}]}]
)
def test_a_key_is_refused(options):
    with pytest.raises(ValueError, match="never holds a key"):
        manifest(options=options)


def test_what_the_caller_gave_may_have_any_word():
    said = {"arguments": {"pronunciation_dictionary": {"constant": {"token": {"type": "SAY_AS"}}}}}
    assert manifest(options=said).options == said
    with pytest.raises(ValueError, match="never holds a key"):
        manifest(options={"arguments": {"token": {"constant": "k"}}})


def test_values_json_does_not_know_are_refused_before_anything_is_replaced(run):
    before = (run.path / "run.json").read_bytes()
    with run.lock(), pytest.raises((TypeError, ValueError)):
        run.update_manifest(options={"rate": float("nan")})
    assert (run.path / "run.json").read_bytes() == before
