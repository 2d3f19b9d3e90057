"""Words that are found in the audio when all calls are done: kept beside it, and never in its way."""

import asyncio
import threading
import time

import pandas as pd
import pyarrow.parquet as pq
import pytest

import speechframe as spf
from speechframe import aio
from speechframe.engines import registry
from speechframe.errors import EngineError, InvalidRows, SettingsError
from speechframe.old_batch import aligning
from speechframe.old_store.lock import is_held
from speechframe.testing import FaultyService, tag_in, tag_of

SAYS = "words are aligned with the audio by listener 1"


@pytest.fixture(scope="module")
def faulty():
    with FaultyService() as running:
        yield running


class Listener:
    """Hears the tag of a text in its audio: words that went to another row would show."""

    name = "listener 1"

    def __init__(self):
        self.heard = []
        self.deaf_to = set()
        self.wait = lambda text: None

    def align(self, audio, *, text, locale, format, sample_rate_hz, channels):
        assert (locale, format.value, sample_rate_hz, channels) == ("en-US", "WAV", 8000, 1)
        assert tag_in(audio) == tag_of(text)
        self.heard.append(text)
        self.wait(text)
        if text in self.deaf_to:
            raise EngineError("nothing was heard")
        return [(word, i, tag_of(text) % 10**6) for i, word in enumerate(text.split())]


@pytest.fixture
def listener(monkeypatch):
    found = Listener()
    monkeypatch.setattr(aligning, "_makers", [lambda: found])
    return found


@pytest.fixture
def options(faulty, tmp_path):
    return {"voice": "nora", "model": "falcon-2", "format": "WAV", "sample_rate": 8000, "words": "align",
            "service": faulty.settings, "run_dir": tmp_path / "run", "progress": False}  # fmt: skip


def expected(text):
    return [
        {"word": word, "start_ms": i, "end_ms": tag_of(text) % 10**6} for i, word in enumerate(text.split())
    ]


def lines(name, count):
    return [f"{name} line {i}" for i in range(count)]


def words_of(run):
    frame = run.to_pandas()
    return {
        row["text"]: None if row["word_durations"] is None else list(row["word_durations"])
        for row in frame.to_dict("records")
    }


def test_every_row_has_the_words_of_its_own_audio_and_says_whose_they_are(options, listener, capsys):
    texts = lines("many", 150)
    run = spf.generate([*texts, *texts[:9]], **{**options, "progress": True})
    assert sorted(listener.heard) == sorted(texts)
    assert words_of(run) == {text: expected(text) for text in texts}
    frame = run.to_pandas()
    assert set(frame["words_basis"]) == {"aligned"}
    assert len(frame) == 159
    assert [word for word, _, _ in run.clip("7").words] == texts[7].split()
    said = capsys.readouterr().err
    assert SAYS in said
    assert "words of 150 rows aligned by listener 1" in said
    assert SAYS in run.summary()
    # Parts hold what the service said, and no more.
    assert all(
        pq.read_table(path)["word_durations"].null_count == len(pq.read_table(path))
        for path in run.part_files
    )
    assert run._folder.verify() == []
    assert words_of(spf.open_run(run.path)) == words_of(run)


def test_what_has_words_is_not_listened_to_again(options, listener):
    texts = lines("again", 5)
    spf.generate(texts, **options)
    run = spf.generate([*texts, "again and more"], **options)
    assert listener.heard == [*texts, "again and more"]
    # A resume knows from the folder that words are wanted.
    more = spf.resume(run, [*texts, "again and a last one"], service=options["service"], progress=False)
    assert listener.heard[-1] == "again and a last one"
    assert set(more.to_pandas()["words_basis"]) == {"aligned"}
    # Words that were found stay, whoever asks.
    kept = spf.generate(texts, **{**options, "words": None})
    assert words_of(kept) == {text: expected(text) for text in texts}
    assert len(listener.heard) == 7


def test_words_of_the_service_stay_as_they_are(options, listener):
    texts = lines("gen2", 3)
    run = spf.generate(texts, **{**options, "model": "gen2"})
    assert listener.heard == []
    assert "words_basis" not in run.to_pandas().columns
    spf.generate(texts, **options)
    mixed = spf.generate(texts, **{**options, "model": "gen2", "words": None})
    assert set(mixed.to_pandas()["words_basis"]) == {"service"}
    assert words_of(mixed) == words_of(run)


def test_a_failure_costs_a_row_its_words_and_nothing_else(options, listener, caplog):
    texts = lines("deaf", 6)
    listener.deaf_to = {texts[2], texts[4]}
    run = spf.generate(texts, **options)
    frame = run.to_pandas(audio=True)
    assert (run.status, set(frame["status"])) == ("finished", {"done"})
    assert [tag_in(audio["bytes"]) for audio in frame["audio"]] == list(map(tag_of, texts))
    assert frame.loc[frame["words_basis"].isna(), "text"].tolist() == [texts[2], texts[4]]
    assert [text for text, words in words_of(run).items() if words is None] == [texts[2], texts[4]]
    assert sum("nothing was heard" in record.message for record in caplog.records) == 2
    listener.deaf_to = set()
    listener.heard.clear()
    assert None not in words_of(spf.generate(texts, **options)).values()
    assert listener.heard == [texts[2], texts[4]]


def test_rows_without_audio_are_not_listened_to(options, listener, faulty):
    texts = lines("failed", 3)
    faulty.set(scripts={texts[1]: ["400", "..."]})
    run = spf.generate(texts, **options)
    faulty.set(scripts={})
    rows = run.to_arrow().to_pylist()
    assert [row["words_basis"] for row in rows] == ["aligned", None, "aligned"]
    assert [row["word_durations"] for row in rows] == [expected(texts[0]), [], expected(texts[2])]
    assert listener.heard == [texts[0], texts[2]]


@pytest.mark.quiet
def test_the_loop_goes_on_while_somebody_listens(options, listener):
    listener.wait = lambda text: time.sleep(0.15)
    longest = 0.0

    async def watched():
        nonlocal longest
        task = asyncio.create_task(aio.generate(lines("loop", 4), **options))
        last = time.monotonic()
        while not task.done():
            await asyncio.sleep(0.005)
            if listener.heard:
                longest = max(longest, time.monotonic() - last)
            last = time.monotonic()
        return await task

    run = asyncio.run(watched())
    assert None not in words_of(run).values()
    assert longest < 0.12, "the loop was held up"


def test_a_run_that_is_stopped_while_listening_keeps_what_it_has_and_goes_on_later(options, listener):
    texts = lines("stop", 70)
    begun, go_on = threading.Event(), threading.Event()

    def wait(text):
        if text == texts[66]:
            begun.set()
            assert go_on.wait(60)

    listener.wait = wait
    run = spf.generate(texts, wait=False, **options)
    assert begun.wait(60)
    assert run.status == "running"
    run.stop()
    # In the loop of the run, after the stop.
    run._live.loop.call_soon_threadsafe(go_on.set)
    run.wait(60)
    assert run.status == "finished"
    listener.wait = lambda text: None
    assert [text for text, words in words_of(run).items() if words is None] == texts[67:]
    run = spf.resume(run, service=options["service"], progress=False)
    assert None not in words_of(run).values()
    assert len(listener.heard) == 70


async def test_cancelled_while_somebody_listens_the_lock_is_held_until_what_was_found_is_kept(
    options, listener
):
    texts = lines("cancel", 3)
    begun, go_on = threading.Event(), threading.Event()

    def wait(text):
        begun.set()
        assert go_on.wait(60)

    run = await aio.generate(texts, **{**options, "words": None})
    listener.wait = wait
    aligned = asyncio.create_task(aligning.align(run._folder, listener, is_stopped=lambda: False))
    assert await asyncio.to_thread(begun.wait, 60)
    aligned.cancel()
    await asyncio.sleep(0.05)
    held = is_held(run.path), aligned.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await aligned
    assert held == (True, False)
    assert not is_held(run.path)
    # It was told, too: nobody listens to the rest for nothing.
    assert listener.heard == texts[:1]
    assert [row["words_basis"] for row in run.to_pandas().to_dict("records")].count("aligned") == 1


def test_the_callers_own_column_keeps_its_name(options, listener):
    table = pd.DataFrame({"text": lines("own", 2), "words_basis": ["mine", "yours"]})
    frame = spf.generate(table, **options).to_pandas()
    assert frame["words_basis"].tolist() == ["mine", "yours"]
    assert frame["speech_words_basis"].tolist() == ["aligned", "aligned"]


def test_a_dry_run_says_it_and_listens_to_nothing(options, listener, capsys):
    run = spf.generate(lines("dry", 2), **{**options, "progress": True, "dry_run": True})
    assert SAYS in capsys.readouterr().err
    assert listener.heard == []
    run = spf.resume(run, service=options["service"], progress=False)
    assert None not in words_of(run).values()


@pytest.mark.parametrize("asked", ["service", True, ["align"] * 2, spf.col("text")])
def test_there_is_one_way_to_words(options, asked):
    with pytest.raises(InvalidRows) as caught:
        spf.generate(lines("ways", 2), **{**options, "words": asked})
    assert [problem["field"] for problem in caught.value.problems] == ["words"]


def test_without_a_recogniser_nothing_is_sent(options, faulty, monkeypatch):
    monkeypatch.setattr(registry, "recognisers", dict)
    before = faulty.books().requests
    with pytest.raises(SettingsError, match=r"pip install 'speechframe\[asr\]'"):
        spf.generate(lines("none", 2), **options)
    assert faulty.books().requests == before
    assert not options["run_dir"].exists()
