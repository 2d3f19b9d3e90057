"""``speechframe cache``: what lies there, and making it smaller; no key and no service is needed."""

import hashlib
import json
import os
import re

import pytest

from speechframe.cli import exits
from speechframe.store.cache import Cache

HOUR_S = 3_600


@pytest.fixture
def nowhere(tmp_path):
    """The environment of somebody without a key, whose own folders lie in the test's."""
    return {
        "SPEECHFRAME_API_KEY": None, "SPEECHFRAME_BASE_URL": None, "XDG_CACHE_HOME": str(tmp_path / "own"),
        # Whoever asks a service would fail here.
        "SPEECHFRAME_SERVICE": "/dev/null/service",
    }  # fmt: skip


def filled(folder, count, size=100_000):
    cache = Cache(folder)
    for number in range(count):
        key = hashlib.blake2b(str(number).encode(), digest_size=16).hexdigest()
        audio = bytes([number]) * (size + number)
        row = {
            "text": "secret words", "word_durations": [["secret", 0, 9]], "format": "FLAC", "audio_seconds": 30.0,
            "voice_id": f"en-US-v{number}", "locale": "en-US", "service": "local/espeak-1",
        }  # fmt: skip
        assert cache.put(key, row, audio)
        for path in cache.folder.rglob("*"):
            if path.is_file():
                said = path.stat()
                os.utime(path, (said.st_atime, said.st_mtime - HOUR_S))
    return cache


def test_ls_shows_the_last_used_first_and_what_all_take(cli, nowhere, tmp_path):
    # There is none yet; and a key without an address is no matter here.
    said = cli("cache", "ls", env={**nowhere, "SPEECHFRAME_API_KEY": "sk-alone"})
    assert (said.code, said.err) == (exits.OK, "")
    assert said.out == f"{tmp_path}/own/speechframe/calls: 0 entries, 0.0 minutes of audio, 0 B of 10.0 GB\n"
    assert not (tmp_path / "own").exists()
    filled(tmp_path / "own" / "speechframe" / "calls", 4)
    said = cli("cache", "ls", "--most", 2, env=nowhere)
    assert said.code == exits.OK, said.err
    lines = said.out.splitlines()
    assert lines[0].split()[:2] == ["LAST", "USED"]
    assert [next(w for w in line.split() if w.startswith("en-US-")) for line in lines[1:3]] == [
        "en-US-v3",
        "en-US-v2",
    ]
    assert lines[3] == "... and 2 more"
    assert re.search(r"calls: 4 entries, 2\.0 minutes of audio, 39\d\.\d KB of 10\.0 GB$", lines[4])
    assert "secret" not in said.out


def test_ls_as_json_is_one_line_without_text(cli, nowhere, tmp_path):
    cache = filled(tmp_path / "c", 3)
    said = cli("cache", "ls", "--by", "size", "--json", env={**nowhere, "SPEECHFRAME_CACHE": cache.folder})
    assert said.out.count("\n") == 1
    found = json.loads(said.out)
    assert (found["cache"], found["entries"], found["bytes"]) == (str(cache.folder), 3, cache.size())
    assert (found["audio_seconds"], found["max_bytes"], found["max_age_days"]) == (90.0, 10 * 2**30, None)
    assert [entry["voice_id"] for entry in found["shown"]] == ["en-US-v2", "en-US-v1", "en-US-v0"]
    assert "secret" not in said.out


def test_prune_takes_limits_from_its_options_and_else_from_the_settings(cli, nowhere, tmp_path):
    cache = filled(tmp_path / "c", 4)
    here = ("--cache", cache.folder)
    gb = 250_000 / 2**30
    planned = json.loads(cli("cache", "prune", *here, "--max-gb", gb, "--dry-run", "--json", env=nowhere).out)
    assert (planned["entries"], planned["entries_left"], planned["dry_run"]) == (2, 2, True)
    assert sum(1 for _ in cache.entries()) == 4
    said = cli("cache", "prune", *here, "--max-gb", gb, env=nowhere)
    assert said.code == exits.OK
    assert re.search(
        r"c: 2 entries \(19\d\.\d KB\) removed; 2 entries \(19\d\.\d KB\) left$", said.out.strip()
    )
    assert sorted(entry["voice_id"] for entry in cache.entries()) == ["en-US-v2", "en-US-v3"]
    (tmp_path / "speechframe.toml").write_text(f"cache = '{cache.folder}'\ncache_max_gb = {gb / 2}\n")
    assert re.search(r"1 entry \(.* KB\) removed", cli("cache", "prune", env=nowhere).out)
    assert cli("cache", "prune", "--max-age-days", 0, env=nowhere).out.endswith("0 entries (0 B) left\n")


def test_a_folder_that_is_no_cache_is_refused(cli, nowhere, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    said = cli("cache", "prune", "--cache", tmp_path, "--max-gb", 0, env=nowhere)
    assert said.code == exits.FOLDER_UNUSABLE
    assert "holds other files and no cache" in said.err
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize(
    "words",
    [
        [], ["ls", "--most", "-1"], ["ls", "--by", "name"], ["prune", "--max-gb", "nan"],
        ["prune", "--cache", "", "--max-gb", "0"], ["ls", "--cache", "s3://bucket/calls"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_usage_says_what_is_allowed(here, words):
    said = here("cache", *words)
    assert said.code == exits.WRONG_USAGE
    assert "usage:" in said.err
    assert "_limit" not in said.err
