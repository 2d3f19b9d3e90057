"""The cache: what comes out is what was put in, or nothing; whoever shares it, dies in it or damages it."""

import errno
import hashlib
import json
import logging
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from store_cases import MOMENT, audio_of, done, failed, key_of

from speechframe.errors import StoreError
from speechframe.old_store import Record
from speechframe.old_store import cache as cache_module
from speechframe.old_store.cache import GB, Cache, Pruned, open_cache

HOUR_S, DAY_S = 3_600, 86_400
KEY = key_of(0)


@pytest.fixture
def cache(tmp_path):
    """An empty cache without limits."""
    return Cache(tmp_path / "cache")


def files_of(cache, room="."):
    return sorted(p for p in (cache.folder / room).rglob("*") if p.is_file() and p.name != "lock")


def entry_file(cache, key=KEY):
    return cache.folder / "entries" / key[:2] / key


def audio_file(cache, audio):
    digest = hashlib.sha256(audio).hexdigest()
    return cache.folder / "audio" / digest[:2] / digest


def age(cache, seconds):
    """Make every file older, as if time had passed."""
    for path in files_of(cache):
        said = path.stat()
        os.utime(path, ns=(said.st_atime_ns, said.st_mtime_ns - int(seconds * 1e9)))


def used_at(cache, key=KEY):
    return entry_file(cache, key).stat().st_mtime


# -- hits and misses -----------------------------------------------------------------


def test_what_was_put_comes_back_as_cached_and_free(cache):
    original = done(KEY, take=2)
    assert cache.get(KEY) is None
    assert cache.put(original)
    found = Cache(cache.folder).get(KEY)
    assert found.finished_at.timestamp() == pytest.approx(time.time(), abs=60)
    assert replace(found, finished_at=MOMENT) == replace(
        original, status="cached", credits_millis=0, billed_characters=0, attempts=0, latency_ms=None,
        balance_after=None, lane=None, text=None, sha256=hashlib.sha256(original.audio_bytes).hexdigest(),
    )  # fmt: skip


def test_the_text_of_a_call_is_in_no_file(cache):
    cache.put(done(KEY, text="nobody may read this", word_durations=[]))
    assert not [path for path in files_of(cache) if b"nobody" in path.read_bytes()]


@pytest.mark.parametrize(
    "record",
    [
        done(KEY, status="suspect"), done(KEY, status="cached"), done(KEY, audio_bytes=None), failed(KEY),
        failed(KEY, "charged_unknown"), done("../../../etc/passwd"), done(KEY.upper()), done("00ff"),
    ],
    ids=lambda r: f"{r.status} {r.request_key[:6]}",
)  # fmt: skip
def test_only_finished_audio_under_a_whole_key_is_put(cache, record, tmp_path):
    assert not cache.put(record)
    assert cache.get(record.request_key) is None
    assert list(tmp_path.rglob("*")) == []


def test_values_a_file_cannot_hold_cost_that_value_only(cache):
    odd = done(
        KEY, voice_id="nora\ud800", sample_rate=np.int32(8000), word_durations=[("a\ud800", np.int64(1), 2)]
    )
    assert cache.put(odd)
    found = cache.get(KEY)
    assert (found.audio_bytes, found.sample_rate, found.word_durations) == (
        odd.audio_bytes,
        8000,
        [("a?", 1, 2)],
    )
    found.voice_id.encode()


def test_equal_audio_is_stored_once(cache):
    audio = audio_of("same", 50_000)
    for number in range(5):
        cache.put(done(key_of(number), audio_bytes=audio))
    assert len(files_of(cache, "audio")) == 1
    assert len(files_of(cache, "entries")) == 5
    assert 50_000 < cache.size() < 60_000
    assert all(cache.get(key_of(number)).audio_bytes == audio for number in range(5))


def test_a_call_that_is_put_again_is_replaced(cache):
    cache.put(done(KEY))
    cache.put(done(KEY, audio_bytes=b"another answer"))
    assert cache.get(KEY).audio_bytes == b"another answer"


DAMAGE = {
    "a flipped bit": lambda content: bytes([*content[:-1], content[-1] ^ 1]),
    "a torn end": lambda content: content[: len(content) // 2],
    "nothing": lambda content: b"",
    "more": lambda content: content + b"x",
    "zeros": lambda content: bytes(len(content)),
    "gone": None,
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("what", ["entry", "audio"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_removed_and_is_a_miss(cache, what, damage):
    record = done(KEY)
    cache.put(record)
    path = entry_file(cache) if what == "entry" else audio_file(cache, record.audio_bytes)
    if DAMAGE[damage] is None:
        path.unlink()
    else:
        path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert cache.get(KEY) is None
    assert not entry_file(cache).exists()
    assert what == "entry" or not path.exists()
    assert cache.put(record)
    assert cache.get(KEY).audio_bytes == record.audio_bytes


ODD = [
    "[]", "{}", "5", "null", '"x"', "{", '{"sha256": "", "made_at": 1}', '{"sha256": "../mine", "made_at": 1}',
    f'{{"sha256": "{"0" * 64}"}}',
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("said", ODD)
def test_an_entry_that_says_something_else_under_its_hash_is_a_miss(cache, said):
    record, mine = done(KEY), cache.folder.parent / "mine"
    cache.put(record)
    mine.write_text("mine")
    path = entry_file(cache)
    path.write_text(f"{hashlib.sha256(said.encode()).hexdigest()}\n{said}")
    assert list(cache.entries()) == []
    assert cache.prune(dry_run=True).entries == 1
    assert cache.get(KEY) is None
    assert not path.exists()
    assert mine.read_text() == "mine"
    assert cache.put(record)
    assert cache.get(KEY).audio_bytes == record.audio_bytes


def test_a_folder_in_the_place_of_audio_makes_way_for_it(cache):
    record = done(KEY)
    cache.put(record)
    path = audio_file(cache, record.audio_bytes)
    path.unlink()
    path.mkdir()
    assert cache.get(KEY) is None
    assert cache.put(record)
    assert cache.get(KEY).audio_bytes == record.audio_bytes


@pytest.mark.parametrize("damage", ["a flipped bit", "zeros"])
def test_audio_that_was_damaged_with_its_entry_is_not_kept_for_the_next_answer(cache, damage):
    record = done(KEY)
    cache.put(record)
    for path in (entry_file(cache), audio_file(cache, record.audio_bytes)):
        path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert cache.get(KEY) is None
    assert cache.put(record)
    assert cache.get(KEY).audio_bytes == record.audio_bytes


def test_a_process_without_file_handles_misses_and_removes_nothing(cache):
    cache.put(done(KEY))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, limits[0]), limits[1]))
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        assert error.errno == errno.EMFILE  # noqa: PT017 - what is done then is what is tested
        assert cache.get(KEY) is None
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert cache.get(KEY) is not None


def test_audio_that_cannot_be_read_now_is_a_miss_and_stays(cache):
    cache.put(done(KEY))
    path = audio_file(cache, audio_of(KEY))
    path.rename(cache.folder / "aside")
    # Whatever a read ends with other than "no such file" says nothing of the content.
    path.mkdir()
    assert cache.get(KEY) is None
    path.rmdir()
    (cache.folder / "aside").rename(path)
    assert cache.get(KEY).audio_bytes == audio_of(KEY)


def test_use_is_marked_at_most_once_an_hour(cache):
    cache.put(done(KEY))
    age(cache, HOUR_S / 2)
    before = used_at(cache)
    cache.get(KEY)
    assert used_at(cache) == before
    age(cache, HOUR_S)
    cache.get(KEY)
    assert time.time() - used_at(cache) < 60


@pytest.mark.parametrize("few", [0, 10_000], ids=["by listing", "one by one"])
def test_holds_says_which_of_many_keys_are_there(cache, few, monkeypatch):
    monkeypatch.setattr(cache_module, "_FEW_KEYS", few)
    monkeypatch.setattr(cache_module, "_CHUNK_KEYS", 7)
    keys = [key_of(number) for number in range(50)]
    assert not cache.holds(keys).any()
    there = set(random.Random(3).sample(keys, 20))
    for key in there:
        cache.put(done(key))
    expected = [key in there for key in keys]
    assert cache.holds(keys).tolist() == expected
    # A row without a call has a key of zeros; a key that only begins or ends like one is another.
    some = next(iter(there))
    odd = [bytes(16), bytes.fromhex(some[:16]) + bytes(8), bytes(8) + bytes.fromhex(some[16:])]
    packed = np.frombuffer(b"".join([*map(bytes.fromhex, keys), *odd]), "V16")
    assert cache.holds(packed).tolist() == [*expected, False, False, False]
    assert cache.holds(packed[:0]).tolist() == []


def test_entries_say_what_is_there_and_skip_what_is_damaged(cache):
    for number in range(3):
        cache.put(done(key_of(number), size=1_000 + number))
    entry_file(cache, key_of(2)).write_bytes(b"")
    found = sorted(cache.entries(), key=lambda entry: entry.bytes)
    assert [entry.key for entry in found] == [key_of(0), key_of(1)]
    said = found[0]
    assert (said.voice_id, said.locale, said.model, said.format) == ("en-US-nora", "en-US", "gen2", "FLAC")
    assert (said.audio_seconds, said.service, said.made_at) == (0.26, "local/espeak-1", MOMENT)
    assert said.bytes == 1_000 + entry_file(cache).stat().st_size
    assert said.last_used.timestamp() == pytest.approx(used_at(cache), abs=1e-3)


# -- the folder ----------------------------------------------------------------------


def test_the_folder_is_its_owner_s_alone_and_made_by_the_first_put(tmp_path):
    before = os.umask(0)
    try:
        cache = Cache(tmp_path / "new" / "cache")
        assert cache.get(KEY) is None
        assert not cache.folder.exists()
        cache.put(done(KEY))
    finally:
        os.umask(before)
    folders = [cache.folder, *(p for p in cache.folder.rglob("*") if p.is_dir())]
    assert len(folders) == 5
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_a_cache_of_a_newer_version_is_refused_by_name(cache):
    cache.put(done(KEY))
    assert json.loads((cache.folder / "cache.json").read_text())["layout"] == 1
    (cache.folder / "cache.json").write_text('{"layout": 2, "speechframe_version": "9.1"}')
    with pytest.raises(StoreError, match=r"layout 2 \(speechframe 9\.1\).*upgrade speechframe") as caught:
        Cache(cache.folder)
    assert str(cache.folder) in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"layout": "x"}', '{"layout": 1e999}'])
def test_a_damaged_marker_is_said(cache, content):
    cache.put(done(KEY))
    (cache.folder / "cache.json").write_text(content)
    with pytest.raises(StoreError, match=r"cache\.json is damaged"):
        Cache(cache.folder)


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match="holds other files and no cache"):
        Cache(tmp_path)
    with pytest.raises(StoreError, match="Not a directory"):
        Cache(tmp_path / "notes.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_two_that_make_the_same_cache_at_once_do_not_refuse_each_other(cache, monkeypatch):
    real, other = cache_module.cache_files.scan, Cache(cache.folder)

    def scan(folder):
        monkeypatch.undo()
        # Between the look for the marker and the look at what else is there.
        assert other.put(done(key_of(1)))
        return real(folder)

    monkeypatch.setattr(cache_module.cache_files, "scan", scan)
    assert cache.put(done(KEY))
    assert cache.holds([KEY, key_of(1)]).all()


def test_a_folder_that_vanishes_is_made_again(cache):
    cache.put(done(KEY))
    shutil.rmtree(cache.folder)
    assert cache.get(KEY) is None
    assert cache.put(done(KEY))
    assert Cache(cache.folder).get(KEY) is not None


FULL = """
import resource, signal, sys, logging
sys.path.insert(0, sys.argv[2])
from store_cases import done, key_of
from speechframe.old_store.cache import Cache

logging.basicConfig(format="%(message)s")
cache = Cache(sys.argv[1])
print(cache.put(done(key_of(1), size=1_000)))
# No file may grow beyond this: a disk that is full, for any user and on any file system.
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))
print(*[cache.put(done(key_of(n), size=20_000)) for n in range(2, 6)], cache.put(done(key_of(6), size=1_000)))
"""


def test_a_full_disk_costs_one_warning_and_nothing_else(cache):
    said = run_script(FULL, cache.folder, Path(__file__).parent)
    assert said.stdout.split() == ["True", *["False"] * 4, "True"]
    assert said.stderr.count("takes nothing (File too large): runs go on without it") == 1
    assert len(said.stderr.splitlines()) == 1
    assert list(cache.folder.rglob("*.tmp")) == []
    assert [cache.get(key_of(n)) is not None for n in range(1, 7)] == [True, *[False] * 4, True]


READ_ONLY = """
import os, sys, logging
sys.path.insert(0, sys.argv[2])
from store_cases import done, key_of
from speechframe.old_store.cache import Cache
from speechframe.errors import StoreError

logging.basicConfig(format="%(message)s")
if os.geteuid() == 0:
    os.setuid(65534)
cache = Cache(sys.argv[1], max_bytes=1)
print(cache.get(key_of(1)) is not None, [cache.put(done(key_of(n))) for n in range(2)], cache.get(key_of(1)) is not None)
print(cache.prune(dry_run=True).entries)
try:
    cache.prune()
except StoreError as error:
    print(error)
"""


def test_a_folder_that_cannot_be_written_is_read_all_the_same():
    # Not below pytest's own folder, which other users may not enter.
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        cache = Cache(Path(root) / "cache")
        cache.put(done(key_of(1)))
        age(cache, 2 * HOUR_S)
        for path in [cache.folder, *cache.folder.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        said = run_script(READ_ONLY, cache.folder, Path(__file__).parent)
        for path in [cache.folder, *cache.folder.rglob("*")]:
            path.chmod(0o755)
    lines = said.stdout.splitlines()
    assert lines[:2] == ["True [False, False] True", "1"]
    assert "cannot be used (Permission denied)" in lines[2]
    assert len(said.stderr.splitlines()) == 1, said.stderr


def run_script(script, *words):
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, check=True, timeout=60
    )  # fmt: skip


# -- many at once, and death ---------------------------------------------------------

CROWD = """
import logging, os, random, sys, threading, time
sys.path.insert(0, sys.argv[2])
from store_cases import audio_of, done, key_of
from speechframe.old_store.cache import Cache

logging.basicConfig(format="%(message)s")
until, hits, wrong = time.monotonic() + 1.5, [], []

def work(seed):
    chance = random.Random(seed)
    cache = Cache(sys.argv[1], max_bytes=150_000)
    # Longer where there are few hits so far: it may have been slow to begin.
    while time.monotonic() < until or (len(hits) < 20 and time.monotonic() < until + 50):
        number = chance.randrange(40)
        if chance.random() < 0.5:
            # Every fourth call was answered with the same audio.
            cache.put(done(key_of(number), audio_bytes=audio_of(str(number // 4), 10_000)))
        elif (found := cache.get(key_of(number))) is not None:
            (hits if found.audio_bytes == audio_of(str(number // 4), 10_000) else wrong).append(number)
        if chance.random() < 0.01:
            cache.prune(max_bytes=chance.choice([0, 50_000]))

threads = [threading.Thread(target=work, args=(int(sys.argv[3]) * 10 + n,)) for n in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(hits), len(wrong))
"""


def test_many_processes_and_threads_share_a_folder(cache):
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", CROWD, cache.folder, Path(__file__).parent, str(seed)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for seed in range(4)
    ]  # fmt: skip
    ends = [process.communicate(timeout=60) for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 4, ends
    assert [err for _, err in ends] == [""] * 4
    counts = [tuple(map(int, out.split())) for out, _ in ends]
    assert sum(wrong for _, wrong in counts) == 0
    assert sum(hits for hits, _ in counts) > 50
    assert list(cache.folder.rglob("*.tmp")) == []
    check_whole(cache)


DOOMED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from store_cases import done, key_of
from speechframe.old_store.cache import Cache

count, real = 0, os.replace
def replace(*names):
    global count
    count += 1
    if count == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*names)
os.replace = replace
cache, number = Cache(sys.argv[1]), 0
while True:
    key = key_of(number)
    if cache.put(done(key, size=400_000)):
        print(key, flush=True)
    number += 1
"""


def doomed(cache, die_at):
    return subprocess.Popen(
        [sys.executable, "-c", DOOMED, cache.folder, Path(__file__).parent, str(die_at)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def check_whole(cache):
    """Every entry there is can be read, and after a day nothing else is left."""
    for path in files_of(cache, "entries"):
        if not path.name.startswith("."):
            found = cache.get(path.name)
            assert found is None or hashlib.sha256(found.audio_bytes).hexdigest() == found.sha256
    age(cache, 2 * DAY_S)
    cache.prune()
    named = {json.loads(p.read_bytes()[65:])["sha256"] for p in files_of(cache, "entries")}
    assert {p.name for p in files_of(cache, "audio")} == named


@pytest.mark.slow
@pytest.mark.parametrize("die_at", [1, 2, 3, 4, 5])
def test_a_process_that_dies_before_a_file_has_its_name_loses_that_file_only(cache, die_at):
    process = doomed(cache, die_at)
    acknowledged = process.communicate(timeout=60)[0].split()
    assert process.returncode == -signal.SIGKILL
    # The marker, then audio and entry of each call.
    assert len(acknowledged) == max(0, die_at - 2) // 2
    assert all(Cache(cache.folder).get(key).audio_bytes == audio_of(key, 400_000) for key in acknowledged)
    assert list(cache.folder.rglob("*.tmp"))
    assert Cache(cache.folder).put(done(key_of(99)))
    check_whole(cache)


@pytest.mark.slow
def test_kill_9_at_any_instant_leaves_whole_entries(cache):
    chance = random.Random(5)
    acknowledged = set()
    for _ in range(4):
        process = doomed(cache, -1)
        acknowledged.add(process.stdout.readline().strip())
        time.sleep(chance.random() * 0.05)
        process.kill()
        acknowledged.update(
            line.strip() for line in process.communicate()[0].splitlines(keepends=True) if line.endswith("\n")
        )
    assert len(acknowledged) > 1
    assert all(cache.get(key).audio_bytes == audio_of(key, 400_000) for key in acknowledged)
    check_whole(cache)


# -- limits --------------------------------------------------------------------------


def test_prune_removes_the_least_recently_used_and_says_so(cache):
    for number in range(4):
        age(cache, 2 * HOUR_S)
        cache.put(done(key_of(number), size=10_000))
    age(cache, 2 * HOUR_S)
    cache.get(key_of(0))
    size = cache.size()
    planned = cache.prune(max_bytes=25_000, dry_run=True)
    assert cache.size() == size
    assert cache.prune(max_bytes=25_000) == planned
    assert planned == Pruned(2, size - cache.size(), 2, cache.size())
    assert cache.holds([key_of(n) for n in range(4)]).tolist() == [True, False, False, True]


def test_audio_stays_while_an_entry_names_it(cache):
    audio = audio_of("shared", 10_000)
    for number in range(3):
        cache.put(done(key_of(number), audio_bytes=audio))
        age(cache, 10 * DAY_S)
    assert cache.prune(max_age_days=15).entries == 2
    assert cache.get(key_of(2)).audio_bytes == audio
    age(cache, 20 * DAY_S)
    assert cache.prune(max_age_days=15) == Pruned(1, pytest.approx(10_500, abs=500), 0, 0)
    assert files_of(cache, "audio") == []


def test_leftovers_go_after_a_day_and_a_put_under_way_is_left_alone(cache):
    cache.put(done(KEY))
    entry_file(cache).unlink()
    leftover = entry_file(cache).with_name(".abc-1-0.tmp")
    leftover.write_bytes(b"half an entry")
    kept = files_of(cache)
    cache.prune(max_bytes=0)
    assert files_of(cache) == kept
    age(cache, 2 * DAY_S)
    assert cache.prune().bytes_freed == sum([len(b"half an entry"), len(audio_of(KEY))])
    assert [path.name for path in files_of(cache)] == ["cache.json"]


def test_audio_without_an_entry_is_in_use_again_once_it_is_put_again(cache, monkeypatch):
    cache.put(done(KEY))
    entry_file(cache).unlink()
    age(cache, 2 * DAY_S)
    real = cache._write

    def write(final, content):
        # Between the audio and the entry of the put below.
        Cache(cache.folder).prune()
        real(final, content)

    monkeypatch.setattr(cache, "_write", write)
    cache.put(done(key_of(1), audio_bytes=audio_of(KEY)))
    assert cache.get(key_of(1)).audio_bytes == audio_of(KEY)


def test_an_entry_that_is_used_while_others_are_pruned_stays(cache, monkeypatch):
    for number in range(2):
        cache.put(done(key_of(number)))
    age(cache, 2 * HOUR_S)
    real = cache_module.cache_files.read_entry

    def read_entry(path):
        # Right after the folder was listed.
        cache.get(key_of(1))
        return real(path)

    monkeypatch.setattr(cache_module.cache_files, "read_entry", read_entry)
    assert cache.prune(max_bytes=0).entries == 1
    assert cache.holds([key_of(0), key_of(1)]).tolist() == [False, True]


def test_prune_removes_what_is_damaged(cache):
    for number in range(3):
        cache.put(done(key_of(number)))
    entry_file(cache, key_of(0)).write_bytes(b"")
    audio_file(cache, audio_of(key_of(1))).unlink()
    assert cache.prune().entries == 2
    assert cache.holds([key_of(n) for n in range(3)]).tolist() == [False, False, True]


def test_pruning_a_cache_that_is_not_there_makes_none(cache):
    assert cache.prune(max_bytes=0) == Pruned(0, 0, 0, 0)
    assert not cache.folder.exists()
    assert (cache.size(), list(cache.entries())) == (0, [])


@pytest.mark.parametrize("each", [1, 500], ids=["a process for each call", "one long process"])
def test_putting_more_and_more_stays_near_the_limit(tmp_path, each):
    random.seed(7)
    limit, largest = 200_000, 0
    cache = Cache(tmp_path, max_bytes=limit)
    for number in range(500):
        if number % each == 0:
            cache = Cache(tmp_path, max_bytes=limit)
        assert cache.put(done(key_of(number), size=2_000))
        if number % 10 == 0:
            largest = max(largest, cache.size())
    assert limit < largest < 1.6 * limit
    assert cache.get(key_of(499)) is not None
    assert cache.get(key_of(0)) is None


def test_old_entries_go_while_others_are_put(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "_CHECK_BYTES", 5_000)
    cache = Cache(tmp_path, max_age_days=30)
    cache.put(done(KEY))
    age(cache, 31 * DAY_S)
    for number in range(1, 12):
        cache.put(done(key_of(number), size=2_000))
    assert cache.holds([key_of(n) for n in range(12)]).tolist() == [False, *[True] * 11]


def test_a_warning_is_said_once_however_often_it_fails(cache, caplog):
    cache.put(done(KEY))
    shutil.rmtree(cache.folder / "audio")
    (cache.folder / "audio").write_text("a file where a folder was")
    with caplog.at_level(logging.WARNING):
        assert [cache.put(done(key_of(n))) for n in range(3)] == [False] * 3
    assert len(caplog.records) == 1
    assert str(cache.folder) in caplog.text


# -- which cache ---------------------------------------------------------------------


def test_the_option_beats_the_settings_and_true_means_the_settings_or_one_s_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = {"folder": tmp_path / "set", "max_gb": 2, "max_age_days": 30}
    assert open_cache(None) is None
    assert open_cache(False, **said) is None
    assert open_cache(None, **said).folder == open_cache(True, **said).folder == tmp_path / "set"
    assert open_cache(tmp_path / "given", **said).folder == tmp_path / "given"
    assert open_cache("~/given").folder == Path.home() / "given"
    assert open_cache(True).folder == tmp_path / "speechframe" / "calls"
    limited = open_cache(True, **said)
    assert (limited.max_bytes, limited.max_age_days) == (2 * GB, 30)
    assert open_cache(True).max_bytes is None


def test_a_record_from_the_cache_goes_into_a_run(run, cache):
    cache.put(done(KEY))
    found = cache.get(KEY)
    found.text = "filled in by the run"
    with run.lock(), run.writer() as out:
        out.answer(found)
    row = run.row(KEY)
    assert (row["status"], row["credits"], row["attempts"], row["text"]) == (
        "cached",
        0,
        0,
        "filled in by the run",
    )
    assert run.verify() == []
    assert isinstance(found, Record)


def test_a_translation_is_kept_without_audio(tmp_path):
    cache = Cache(tmp_path / "cache")
    key = "ab" * 16
    said = {
        "translated_text": "Grüße \U0001f600", "route": "en>fr>de", "length_ratio": 1.25, "placeholders_ok": True,
        "glossary_ok": None, "locale": "de-DE", "warnings": ["odd"],
    }  # fmt: skip
    assert cache.put(Record(key, "done", text="Regards", credits_millis=7000, **said))
    found = cache.get(key)
    assert {name: getattr(found, name) for name in said} == said
    assert (found.audio_bytes, found.sha256, found.text, found.credits_millis) == (None, None, None, 0)
    (entry,) = cache.entries()
    assert (entry.key, entry.locale, entry.audio_seconds) == (key, "de-DE", None)
    assert not list((tmp_path / "cache" / "audio").rglob("*"))
    # It stays while there is room, and goes when there is none.
    assert cache.prune(max_bytes=10**9).entries_left == 1
    assert cache.prune(max_bytes=0).entries == 1
    assert cache.get(key) is None


def test_an_answer_without_audio_or_translation_is_not_kept(tmp_path):
    assert not Cache(tmp_path / "cache").put(Record("ab" * 16, "done", text="Regards"))


def test_a_put_that_prunes_reads_the_ends_of_entries_and_comes_to_the_same(tmp_path, monkeypatch):
    def filled(name, **limits):
        cache = Cache(tmp_path / name, **limits)
        for number in range(40):
            # Five entries name the same audio.
            audio = audio_of(key_of(number % 8), 5_000)
            cache.put(
                done(key_of(number), audio_bytes=audio, word_durations=[(f"w{i}", i, i) for i in range(300)])
            )
        entry_file(cache, key_of(3)).write_bytes(b"")
        audio_file(cache, audio_of(key_of(4), 5_000)).unlink()
        age(cache, 2 * HOUR_S)
        cache.get(key_of(7))
        return cache

    whole = []
    real = cache_module.cache_files.read_entry
    monkeypatch.setattr(cache_module.cache_files, "read_entry", lambda path: whole.append(path) or real(path))
    checked, quick = filled("checked"), filled("quick", max_age_days=1 / 24)
    assert checked.prune(max_age_days=1 / 24).entries == 39
    assert len(whole) == 40
    quick._tidied()
    assert len(whole) == 41, "only the one that does not end as it should"
    left = [sorted(path.name for path in files_of(cache)) for cache in (checked, quick)]
    assert left[0] == left[1]
    assert quick.get(key_of(7)) is not None


def test_a_put_that_prunes_keeps_an_entry_that_ends_in_another_way(tmp_path):
    cache = Cache(tmp_path / "cache", max_age_days=1)
    cache.put(done(KEY))
    path = entry_file(cache, KEY)
    said = json.dumps({**json.loads(path.read_bytes()[65:]), "more": [1]}).encode()
    path.write_bytes(hashlib.sha256(said).hexdigest().encode() + b"\n" + said)
    cache._tidied()
    assert cache.get(KEY) is not None


@pytest.mark.parametrize("audio", [None, b"RIFF"])
def test_the_end_of_an_entry_names_its_audio(cache, audio):
    cache.put(done(KEY, audio_bytes=audio, translated_text='"sha256": "", "made_at": 1}'))
    (file,) = cache_module.cache_files.listed(str(cache.folder), "entries")
    expected = "" if audio is None else hashlib.sha256(audio).hexdigest()
    assert cache_module.cache_files.read_digest(file) == expected
