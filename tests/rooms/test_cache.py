"""Answers that runs share: whole or not there, the least recently used go first, nothing outside is touched."""

import os
import tempfile
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.store.cache import Cache

KEYS = [f"{number:02d}" * 16 for number in range(6)]
ROW = {"format": "WAV", "voice_id": "nora", "finished_at": 1.7e9, "text": "secret", "credits": 1.0}


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(["put", "get", "prune", "damage"]), st.integers(0, 5)), max_size=20)
)
def test_it_holds_what_was_put_until_it_is_pruned_or_damaged(steps):
    with tempfile.TemporaryDirectory() as folder:
        cache, held = Cache(folder), {}  # by last use
        for step, number in steps:
            key, audio = KEYS[number], bytes([number]) * 1000
            path = cache.folder / "entries" / key[:2] / key
            if step == "put":
                cache.put(key, ROW, audio)
                held.pop(key, None)
                held[key] = audio
                os.utime(path, (time.time() - 1000 + len(steps) + steps.index((step, number)),) * 2)
            elif step == "get":
                found = cache.get(key)
                assert (None if found is None else found[1]) == held.get(key)
            elif step == "damage" and key in held:
                path.write_bytes(path.read_bytes()[:-1] + b"?")
                del held[key]
                assert cache.get(key) is None
            elif step == "prune":
                ages = {k: (cache.folder / "entries" / k[:2] / k).stat().st_mtime for k in held}
                size = cache.size()
                pruned = cache.prune(max_bytes=size - 1 if size else 0)
                if held:
                    oldest = min(ages, key=ages.get)
                    assert pruned["entries"] == 1
                    gone = [k for k in held if not cache.has([k])[0]]
                    assert [ages[k] for k in gone] == [ages[oldest]]
                    del held[gone[0]]
            assert cache.has(KEYS) == [k in held for k in KEYS]
        assert {entry["key"] for entry in cache.entries()} == set(held)


def test_deleting_never_follows_a_link(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / KEYS[0]).write_bytes(b"mine")
    cache = Cache(tmp_path / "cache", max_bytes=0)
    cache.put(KEYS[1], ROW, b"x")
    shard = cache.folder / "entries" / KEYS[0][:2]
    shard.symlink_to(outside)
    (cache.folder / "entries" / KEYS[1][:2] / KEYS[2]).symlink_to(outside / KEYS[0])
    assert cache.get(KEYS[0]) is None
    assert not cache.put(KEYS[0], ROW, b"y")
    assert cache.prune()["entries"] <= 1
    assert (outside / KEYS[0]).read_bytes() == b"mine"


def test_what_is_kept_is_the_answer_and_not_the_text(tmp_path):
    cache = Cache(tmp_path / "cache")
    cache.put(KEYS[0], ROW, b"RIFF")
    assert cache.get(KEYS[0]) == ({"format": "WAV", "voice_id": "nora", "finished_at": 1.7e9}, b"RIFF")
    assert b"secret" not in next(cache.folder.glob("entries/*/*")).read_bytes()
    assert not cache.put("../../outside", ROW, b"x")
    assert cache.folder.stat().st_mode & 0o077 == 0
