"""A run is a folder, and a cache is one: what is damaged or lost is named, and nothing outside is touched."""

import json
import os
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest
from accounts import billed, check_audio, price, statuses

import speechframe as spf

HOLDER = "holder.json"


@pytest.fixture(scope="module")
def service(services):
    return services(idempotent=False, limits_page=False)


def command(*words):
    """Run a command of the package; return its exit code and what it says."""
    ended = subprocess.run(
        [sys.executable, "-m", "speechframe", *map(str, words)], capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr


def files_below(folder):
    return {path for path in folder.rglob("*") if path.is_file()}


def damage(path):
    """Change a byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def test_files_of_two_services_are_never_mixed(services, service, speak, lines):
    other, texts = services(seed=1), lines(3)
    run = speak(service, texts)

    def content(path):
        # `holder.json` says who had the lock last, and since when: whoever is refused has taken it, too.
        return {**json.loads(path.read_bytes()), "since": None} if path.name == HOLDER else path.read_bytes()

    before = {path: content(path) for path in files_below(run.path)}
    assert run.path / HOLDER in before
    for again in (
        lambda: speak(other, lines(4)),
        lambda: spf.resume(run, service=other.settings, progress=False),
        lambda: spf.resume(run, table=lines(4), service=other.settings, progress=False),
    ):
        with pytest.raises(spf.RunMismatch):
            again()
    assert other.books().billed_characters == 0
    assert {path: content(path) for path in files_below(run.path)} == before


def test_answers_of_one_service_are_not_taken_for_another_s(services, service, speak, lines, tmp_path):
    other, texts = services(seed=1), lines(2)
    speak(service, texts, run_dir=tmp_path / "first", cache=tmp_path / "cache")
    run = speak(other, texts, run_dir=tmp_path / "second", cache=tmp_path / "cache")
    assert run.estimate.cached == 0
    assert other.books().billed_characters == sum(map(len, texts))


def test_verify_names_what_is_damaged(service, speak, lines):
    run = speak(service, lines(6))
    code, said = command("runs", "verify", run.path)
    assert code == 0, said
    part = min(run.part_files)
    damage(part)
    code, said = command("runs", "verify", run.path)
    assert code == 1
    assert part.name in said


def test_a_file_of_the_run_has_its_name_when_it_is_on_the_disk(service, speak, lines, monkeypatch):
    done = []

    def watch(name):
        real = getattr(os, name)

        def call(first, *rest, **options):
            path = Path(f"/proc/self/fd/{first}").readlink() if isinstance(first, int) else first
            real(first, *rest, **options)
            done.append((name, *map(str, (path, *rest))))

        monkeypatch.setattr(os, name, call)

    watch("fsync")
    watch("replace")
    run = speak(service, lines(3))
    for path in (*run.part_files, *(run.path / "attempts").glob("*.parquet")):
        (named,) = [place for place, step in enumerate(done) if step[0] == "replace" and step[2] == str(path)]
        _, draft, _ = done[named]
        assert draft != str(path)
        assert ("fsync", draft) in done[:named]
        assert ("fsync", str(path.parent)) in done[named:]


def test_a_lost_table_is_named_and_handed_in_again(service, speak, lines):
    texts = lines(5)
    folder = speak(service, texts).path
    for again in (
        lambda: speak(service, texts),
        lambda: spf.resume(folder, table=texts, service=service.settings, progress=False),
    ):
        for path in files_below(folder / "input"):
            path.unlink()
        code, said = command("runs", "verify", folder)
        assert code == 1
        assert "input" in said
        run = again()
        assert statuses(run) == ["done"] * 5
        check_audio(run)
        assert billed(service, texts) == price(texts)
    assert command("runs", "verify", folder)[0] == 0


def test_without_its_ledger_a_run_with_a_limit_spends_nothing(service, speak, lines):
    texts = lines(8)
    run = speak(service, texts, max_credits=price(texts) // 2)
    paid = billed(service, texts)
    for path in files_below(run.path / "attempts"):
        path.unlink()
    with pytest.raises(spf.SpeechframeError):
        spf.resume(run.path, max_credits=price(texts), service=service.settings, progress=False)
    assert billed(service, texts) == paid
    assert command("runs", "verify", run.path)[0] == 1


def test_without_the_ledger_of_calls_that_failed_a_run_with_a_limit_spends_nothing(services, speak, lines):
    service = services(idempotent=False, limits_page=False, faults={"reset_after": 1.0})
    texts = lines(4)
    run = speak(service, texts, max_credits=price(texts))
    assert statuses(run) == ["charged_unknown"] * 4
    paid = billed(service, texts)
    for path in files_below(run.path / "attempts"):
        path.unlink()
    service.set(faults={})
    with pytest.raises(spf.StoreError, match="attempts"):
        spf.resume(run.path, service=service.settings, progress=False)
    assert billed(service, texts) == paid


def test_answers_that_have_lost_their_ledger_are_never_written_over(service, speak, lines):
    texts = lines(8)
    run = speak(service, texts, max_credits=price(texts) // 2)
    kept = {path: path.read_bytes() for path in files_below(run.path / "parts")}
    ledger = {path: path.read_bytes() for path in files_below(run.path / "attempts")}
    for path in ledger:
        path.unlink()
    spf.resume(run.path, max_credits=inf, service=service.settings, progress=False)
    assert {path: path.read_bytes() for path in kept} == kept
    for path, content in ledger.items():
        path.write_bytes(content)
    assert command("runs", "verify", run.path)[0] == 0


def test_an_entry_of_the_cache_that_is_damaged_is_made_anew(service, speak, lines, tmp_path):
    texts = lines(4)
    speak(service, texts, run_dir=tmp_path / "first", cache=tmp_path / "cache")
    large = [path for path in files_below(tmp_path / "cache") if path.stat().st_size > 1000]
    assert len(large) >= 2
    damage(large[0])
    damage(large[1])
    run = speak(service, texts, run_dir=tmp_path / "second", cache=tmp_path / "cache")
    assert sorted(statuses(run)) == ["cached", "cached", "done", "done"]
    check_audio(run)
    assert billed(service, texts) == price(texts) + run.ledger["credits"].sum()


def test_the_cache_stays_below_its_bound(services, speak, lines, tmp_path, monkeypatch):
    service, texts, limit_bytes = services(audio_bytes=50_000), lines(60), 1_000_000
    (tmp_path / "speechframe.toml").write_text(f"cache_max_gb = {limit_bytes / 2**30}")
    monkeypatch.chdir(tmp_path)
    options = {"cache": tmp_path / "cache", "format": "WAV"}
    speak(service, texts, **options)
    held = sum(path.stat().st_size for path in files_below(tmp_path / "cache"))
    assert 0 < held <= limit_bytes
    run = speak(service, texts, run_dir=tmp_path / "second", **options)
    assert 0 < statuses(run).count("cached") < 60
    check_audio(run)


def behind_links(folder, outside):
    """Put every folder of `folder` outside of it, with a link where it was; return all files there."""
    outside.mkdir()
    for path in [path for path in folder.iterdir() if path.is_dir()]:
        path.rename(outside / path.name)
        path.symlink_to(outside / path.name, target_is_directory=True)
    return files_below(outside)


def test_pruning_the_cache_removes_nothing_outside_of_it(service, speak, lines, tmp_path):
    speak(service, lines(4), cache=tmp_path / "cache")
    files = behind_links(tmp_path / "cache", tmp_path / "mine")
    assert files
    _, said = command("cache", "prune", "--cache", tmp_path / "cache", "--max-gb", "0")
    assert "usage" not in said
    assert all(path.exists() for path in files)


def test_a_run_folder_is_left_by_no_link(service, speak, lines, tmp_path):
    run = speak(service, lines(2))
    files = behind_links(tmp_path / "run", tmp_path / "mine")
    before = {path: path.read_bytes() for path in files}
    with pytest.raises(spf.StoreError, match="link"):
        spf.resume(run.path, table=lines(3), service=service.settings, progress=False)
    assert {path: path.read_bytes() for path in files_below(tmp_path / "mine")} == before


def test_removing_a_run_removes_only_what_is_its_own(service, speak, lines):
    run = speak(service, lines(1))
    (run.path / "notes.txt").write_text("mine")
    command("runs", "rm", run.path, "--yes")
    assert not (run.path / "run.json").exists()
    assert (run.path / "notes.txt").read_text() == "mine"


def test_removing_a_run_removes_nothing_outside_of_it(service, speak, lines, tmp_path):
    run = speak(service, lines(2))
    files = behind_links(run.path, tmp_path / "mine")
    command("runs", "rm", run.path, "--yes")
    assert files_below(tmp_path / "mine") == files
