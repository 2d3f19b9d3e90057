"""Any sequence of puts, hits, damage and pruning leaves what a plain dictionary says."""

import os
import shutil
import tempfile
import time
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from store_cases import audio_of, done, key_of

from speechframe.old_store.cache import Cache

KEYS = st.integers(0, 7).map(key_of)
# Few, so that calls share audio.
SIZES = {"a": 100, "b": 3_000, "c": 20_000}
AUDIO = st.sampled_from(sorted(SIZES)).map(lambda name: audio_of(name, SIZES[name]))
STEP_S = 7_200


class Caching(RuleBasedStateMachine):
    """A cache beside a model of it: key to audio, the least recently used first."""

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.cache = Cache(self.root / "cache")
        self.model = {}
        self.used_s = {}
        self.entry_bytes = {}

    def teardown(self):
        shutil.rmtree(self.root)

    def pass_time(self, seconds=STEP_S):
        """Two hours between any two steps: use is marked at most once an hour."""
        for path in self.root.rglob("*"):
            if path.is_file():
                said = path.stat()
                os.utime(path, (said.st_atime, said.st_mtime - seconds))
        self.used_s = {key: used - seconds for key, used in self.used_s.items()}

    def use(self, key):
        self.model[key] = self.model.pop(key)
        self.used_s[key] = time.time()

    @initialize(
        keys=st.permutations([key_of(number) for number in range(8)]),
        audio=st.lists(AUDIO, min_size=8, max_size=8),
    )
    def fill(self, keys, audio):
        for key, content in zip(keys, audio, strict=True):
            self.put(key, content)

    @rule(pairs=st.lists(st.tuples(KEYS, AUDIO), min_size=1, max_size=5))
    def put_some(self, pairs):
        for key, audio in pairs:
            self.put(key, audio)

    def put(self, key, audio):
        self.pass_time()
        assert self.cache.put(done(key, audio_bytes=audio))
        self.model[key] = audio
        self.entry_bytes[key] = (self.root / "cache" / "entries" / key[:2] / key).stat().st_size
        self.use(key)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4))
    def get_some(self, keys):
        for key in keys:
            self.pass_time()
            found = self.cache.get(key)
            assert (None if found is None else found.audio_bytes) == self.model.get(key)
            if found is not None:
                self.use(key)

    @rule(key=KEYS)
    def damage(self, key):
        if key in self.model:
            path = self.root / "cache" / "entries" / key[:2] / key
            said = path.stat()
            path.write_bytes(path.read_bytes()[:-1])
            os.utime(path, (said.st_atime, said.st_mtime))
            self.cache = Cache(self.root / "cache")
            assert self.cache.get(key) is None
            del self.model[key]

    @rule(share=st.floats(0.02, 1.2), dry_run=st.booleans())
    def prune_to_a_size(self, share, dry_run):
        # So long that audio without an entry goes first.
        self.pass_time(2 * 86_400)
        size = self.cache.size()
        most = int(share * size)
        if dry_run:
            assert self.cache.prune(max_bytes=most, dry_run=True).bytes_left <= most
            assert self.cache.size() == size
            return
        expected = self.to_be_lost(most)
        done = self.cache.prune(max_bytes=most)
        assert (done.bytes_left, done.bytes_freed) == (self.cache.size(), size - self.cache.size())
        assert self.cache.size() <= most
        assert done.entries == expected
        self.check_lost(done.entries)

    @rule(hours=st.integers(1, 40))
    def prune_by_age(self, hours):
        self.pass_time(3_600)
        days = hours / 24
        done = self.cache.prune(max_age_days=days)
        self.check_lost(done.entries)
        assert all(time.time() - self.used_s[key] <= days * 86_400 + 60 for key in self.model)

    def to_be_lost(self, most):
        """Return how many calls have to go until the rest fits, audio of several counted once."""
        keys = list(self.model)
        for lost in range(len(keys) + 1):
            left = keys[lost:]
            size = sum(self.entry_bytes[key] for key in left) + sum(
                map(len, {self.model[key] for key in left})
            )
            if size <= most:
                return lost
        raise AssertionError

    def check_lost(self, count):
        """What was lost is what was used the longest ago, and no more than was said."""
        kept = self.cache.holds(list(self.model)).tolist()
        assert kept == [False] * count + [True] * (len(kept) - count)
        for key in list(self.model)[:count]:
            del self.model[key], self.used_s[key]

    @invariant()
    def entries_are_the_model_s(self):
        assert {entry.key for entry in self.cache.entries()} == set(self.model)


def test_no_sequence_loses_what_was_used_last_or_passes_a_limit():
    run_state_machine_as_test(
        Caching, settings=settings(max_examples=30, stateful_step_count=12, deadline=None)
    )
