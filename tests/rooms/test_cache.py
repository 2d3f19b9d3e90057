"""Answers that runs share: what is kept of them, and which of them go first."""

import os
import time

import speechframe as spf
from speechframe.cli.app import main
from speechframe.testing import FaultyService


def test_an_answer_is_kept_without_its_text_and_what_was_not_used_longest_goes_first(tmp_path):
    lines = [f"secret line number {number}" for number in range(3)]
    cache = tmp_path / "cache"
    with FaultyService(audio_bytes=50_000) as service:

        def cached(lines, name):
            run = spf.generate(lines, voice="nora", format="WAV", run_dir=tmp_path / name, cache=cache,
                               service=service.settings, progress=False)  # fmt: skip
            return [status == "cached" for status in run.to_pandas()["status"]]

        assert cached(lines, "first") == [False] * 3
        files = [path for path in cache.rglob("*") if path.is_file()]
        assert cache.stat().st_mode & 0o077 == 0
        assert not [path for path in files if any(line.encode() in path.read_bytes() for line in lines)]
        for path in files:
            os.utime(path, (time.time() - 7200,) * 2)
        assert cached(lines[:1], "used") == [True]
        gigabytes = 0.5 * sum(path.stat().st_size for path in files) / 2**30
        assert main(["cache", "prune", "--cache", str(cache), "--max-gb", str(gigabytes)]) == 0
        assert cached(lines, "again") == [True, False, False]
