"""Answers that runs share: what is kept of them, and which of them go first."""

import time

import speechframe as spf
from speechframe.testing import FaultyService


def test_the_answer_is_kept_without_its_text_and_what_was_not_used_longest_goes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"secret line number {number}" for number in range(3)]
    with FaultyService(audio_bytes=50_000) as service:

        def cached(lines, name, **limits):
            (tmp_path / "speechframe.toml").write_text("".join(f"{k} = {v}\n" for k, v in limits.items()))
            run = spf.generate(lines, voice="nora", format="WAV", run_dir=tmp_path / name, cache="cache",
                               service=service.settings, progress=False)  # fmt: skip
            time.sleep(0.02)
            return [status == "cached" for status in run.to_pandas()["status"]]

        for number, line in enumerate(lines):
            assert cached([line], f"first {number}") == [False]
        files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
        assert (tmp_path / "cache").stat().st_mode & 0o077 == 0
        assert not [path for path in files if any(line.encode() in path.read_bytes() for line in lines)]
        # The first one is used again; then there is room for two.
        assert cached(lines[:1], "used") == [True]
        held = sum(path.stat().st_size for path in files)
        assert cached(["another line"], "more", cache_max_gb=held * 0.7 / 2**30) == [False]
        assert cached(lines, "again") == [True, False, False]
