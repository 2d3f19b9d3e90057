"""The tables and clips of `datasets/` are what their README says: complete, consistent, in the right script."""

import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile

from speechframe.audio.measure import f0_track, find_silences, measure_clipped_fraction, measure_loudness_lufs
from speechframe.local.dubbing import media
from speechframe.local.dubbing.speech import find_speech
from speechframe.wire import subtitles

FOLDER = Path(__file__).parents[2] / "datasets"
KINDS = ("narration", "ui_strings", "dialogue")
TABLES = (*KINDS, "demo", "clips")
MAIN_LOCALES = {"en-US", "es-ES", "fr-FR", "de-DE", "pt-BR", "it-IT", "hi-IN", "zh-CN"}
PAUSE = re.compile(r"\[pause \d+(?:\.\d+)?s\]")
PLURAL = re.compile(r"\{\w+, plural,(?P<branches>(?: (?:=\d+|\w+) \{[^{}]*\})+)\}")
PLACEHOLDER = re.compile(r"\{\w+\}|%%|%(?:\d\$)?(?:\(\w+\))?[ds]|</?\w[^>]*>")
# Letters beyond a-z that the language writes: a line of another language soon falls out of its alphabet.
LATIN_EXTRAS = {
    "en": "é",
    "es": "áéíóúüñ",
    "fr": "àâæçéèêëîïôœùûüÿ",
    "de": "äöüß",
    "pt": "áâãàçéêíóôõú",
    "it": "àèéìíòóùú",
}
# Frequent words that the neighbours (Spanish and Portuguese, French and Italian) do not share.
EVERYDAY_WORDS = {
    "en": {"the", "is", "you", "of", "your"},
    "es": {"el", "los", "una", "y", "tu"},
    "fr": {"vous", "les", "est", "votre", "un"},
    "de": {"sie", "der", "die", "und", "ist"},
    "pt": {"você", "uma", "não", "sua", "em"},
    "it": {"il", "di", "che", "è", "un"},
}


@lru_cache
def read(name):
    return pd.read_csv(FOLDER / f"{name}.csv", dtype=str, keep_default_na=False)


def voice_column(name):
    return "voice" if name == "demo" else "speaker"


def spoken_lines():
    """Every text as a voice would get it: locale, text."""
    columns = {
        "narration": "text",
        "ui_strings": "spoken",
        "dialogue": "text",
        "demo": "text",
        "clips": "text",
    }
    return [
        (row.locale, getattr(row, column))
        for name, column in columns.items()
        for row in read(name).itertuples()
    ]


def without_markup(text):
    """UI strings without placeholders: the words alone."""
    text = PLURAL.sub(lambda plural: " ".join(re.findall(r"\{([^{}]*)\}", plural["branches"])), text)
    return PLACEHOLDER.sub(" ", text)


def script_problem(locale, text):
    """Say what in the text does not belong to the locale's script, or nothing."""
    language = locale.partition("-")[0]
    letters = {c for c in PAUSE.sub("", text).lower() if unicodedata.category(c)[0] in "LM"}
    if language == "hi":
        wrong = {c for c in letters if not unicodedata.name(c).startswith("DEVANAGARI")}
    elif language == "zh":
        wrong = {c for c in letters if not unicodedata.name(c).startswith("CJK UNIFIED")}
        # GB 2312 holds simplified characters only.
        wrong |= {c for c in letters if not c.encode("gb2312", "ignore")}
    else:
        wrong = letters - set("abcdefghijklmnopqrstuvwxyz" + LATIN_EXTRAS[language])
    if not letters:
        return "no letters"
    return " ".join(sorted(wrong))


def example_pattern(text):
    """What `spoken` must match: the branch `other`, any value for a placeholder, no tags."""
    text = PLURAL.sub(lambda plural: re.search(r"other \{([^{}]*)\}", plural["branches"])[1], text)
    text = re.sub(r"</?\w[^>]*>", "", text)
    pieces = re.split(r"(\{\w+\}|%%|%(?:\d\$)?(?:\(\w+\))?[ds]|#)", text)
    return "".join(value_pattern(p) if i % 2 else re.escape(p) for i, p in enumerate(pieces))


def value_pattern(placeholder):
    if placeholder == "%%":
        return "%"
    return r"\d+" if placeholder == "#" or placeholder.endswith("d") else r".+"


def test_checksums_cover_every_table_and_clip_and_match():
    lines = (FOLDER / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert set(sums) == files - {"README.md", "SHA256SUMS", ".gitattributes", "models.txt", "clarity.csv"}
    assert {name for name in sums if name.endswith(".csv") and not name.startswith("localization/")} == {
        f"{name}.csv" for name in (*TABLES, "clarity_lines")
    }
    for name, digest in sums.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("name", TABLES)
def test_files_are_utf8_with_line_feeds_and_composed_characters(name):
    data = (FOLDER / f"{name}.csv").read_bytes()
    text = data.decode("utf-8")
    assert data.endswith(b"\n")
    assert "\r" not in text
    assert not text.startswith("\ufeff")
    assert unicodedata.is_normalized("NFC", text)


def test_demo_is_a_short_run_over_all_locales_and_many_voices():
    demo = read("demo")
    assert list(demo.columns) == ["id", "kind", "locale", "voice", "text"]
    assert 120 <= len(demo) <= 160
    assert set(demo["locale"]) >= MAIN_LOCALES
    assert set(demo["kind"]) == set(KINDS)
    assert demo["voice"].nunique() >= 16
    assert demo["text"].str.len().between(30, 110).all()
    assert demo["text"].str.contains(PAUSE.pattern).sum() >= 2
    assert demo["text"].str.contains(r"\d").sum() >= 20
    assert demo["text"].str.contains(r"Dr\. |\bSr\. |z\. B\.|e\.g\.", regex=True).sum() >= 4


def test_demo_lines_come_from_the_three_tables():
    known = set()
    for kind in KINDS:
        column = "spoken" if kind == "ui_strings" else "text"
        known |= {(kind, *row) for row in read(kind)[["locale", "speaker", column]].itertuples(index=False)}
    lines = read("demo")[["kind", "locale", "voice", "text"]].itertuples(index=False)
    assert [tuple(line) for line in lines if tuple(line) not in known] == []


def test_demo_repeats_one_or_two_lines_word_for_word():
    demo = read("demo")
    repeated = demo[demo["text"].duplicated()]
    assert 1 <= len(repeated) <= 2
    assert demo.duplicated(["kind", "locale", "voice", "text"]).sum() == len(repeated)


@pytest.mark.parametrize("name", TABLES)
def test_ids_are_unique_strings_with_their_leading_zeros(name):
    ids = read(name)["id"]
    assert ids.is_unique
    assert ids.str.fullmatch(r"[a-z0-9-]+").all()
    if name in {"narration", "demo"}:
        assert ids.tolist() == [f"{number:04d}" for number in range(1, len(ids) + 1)]


@pytest.mark.parametrize("name", TABLES)
def test_voices_are_full_ids_of_the_rows_locale(name):
    table = read(name)
    column = voice_column(name)
    bad = [
        (row["id"], row[column])
        for row in table.to_dict("records")
        if not re.fullmatch(rf"{re.escape(row['locale'])}-[a-z]+", row[column])
    ]
    assert bad == []


def test_every_spoken_line_is_in_the_script_of_its_locale():
    problems = [(text, p) for locale, text in spoken_lines() if (p := script_problem(locale, text))]
    assert problems == []


def test_the_words_of_ui_strings_are_in_the_script_of_their_locale():
    rows = read("ui_strings").itertuples()
    problems = [(r.id, p) for r in rows if (p := script_problem(r.locale, without_markup(r.text)))]
    assert problems == []


@pytest.mark.parametrize(
    ("locale", "text"),
    [("hi-IN", "hello"), ("zh-CN", "讀書"), ("zh-CN", "नमस्ते"), ("de-DE", "Olá, não"), ("en-US", "12, 13")],
)
def test_the_script_check_sees_a_line_of_another_language(locale, text):
    assert script_problem(locale, text)


@pytest.mark.parametrize("language", EVERYDAY_WORDS)
def test_lines_sound_like_their_language_and_no_other(language):
    text = " ".join(t for locale, t in spoken_lines() if locale.startswith(language)).lower()
    words = re.findall(r"\w+", text)
    hits = {other: sum(word in frequent for word in words) for other, frequent in EVERYDAY_WORDS.items()}
    assert max(hits, key=hits.get) == language


def test_pause_markers_are_all_well_formed():
    stray = [text for _, text in spoken_lines() if set("[]") & set(PAUSE.sub("", text))]
    assert stray == []


def test_listed_placeholders_are_exactly_those_of_the_text():
    for row in read("ui_strings").itertuples():
        listed = row.placeholders.split(" | ")
        heads = re.findall(r"\{\w+, plural,", row.text)
        numbers = ["#"] if any("#" in plural[0] for plural in PLURAL.finditer(row.text)) else []
        # The address inside a tag belongs to the tag: it is found as one placeholder.
        simple = PLACEHOLDER.findall(PLURAL.sub("", row.text))
        assert sorted(listed) == sorted(heads + numbers + simple), row.id
        assert all(placeholder in row.text for placeholder in listed), row.id


def test_plural_messages_are_whole_and_have_the_branch_other():
    for row in read("ui_strings").itertuples():
        assert row.text.count("{") == row.text.count("}"), row.id
        assert row.text.count(", plural,") == len(PLURAL.findall(row.text)), row.id
        assert all(" other {" in plural["branches"] for plural in PLURAL.finditer(row.text)), row.id


def test_spoken_is_the_text_with_values_filled_in():
    for row in read("ui_strings").itertuples():
        assert re.fullmatch(example_pattern(row.text), row.spoken), row.id
        assert not re.search(r"[{}<>#]|%[sd(0-9]", row.spoken), row.id


def test_a_key_has_the_same_placeholders_and_context_in_every_locale():
    strings = read("ui_strings")
    for key, rows in strings.groupby("key"):
        assert len(set(rows["context"])) == 1, key
        assert len(set(rows["placeholders"])) == 1, key
    assert not strings.duplicated(["key", "locale"]).any()


def test_narration_runs_line_by_line_through_one_module():
    narration = read("narration")
    assert len(set(narration["module"])) == 1
    for locale, lines in narration.groupby("locale"):
        assert lines["line"].tolist() == [str(n) for n in range(1, 13)], locale
        assert lines["section"].drop_duplicates().tolist() == ["intro", "lesson", "example", "recap"], locale


def test_scenes_have_two_speakers_who_take_turns():
    for scene, lines in read("dialogue").groupby("scene"):
        assert lines["turn"].tolist() == [str(n) for n in range(1, len(lines) + 1)], scene
        assert len(set(lines["locale"])) == 1, scene
        assert len(set(lines["speaker"])) == 2, scene
        assert (lines["speaker"] != lines["speaker"].shift()).all(), scene


def test_readme_counts_are_those_of_the_tables():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    totals = re.findall(r"^\| `(\w+)\.csv` \|.*\| (\d+) \|$", readme, re.MULTILINE)
    assert {name: int(rows) for name, rows in totals} == {name: len(read(name)) for name in TABLES}
    rows = re.findall(
        r"^\| ([a-z]{2}-[A-Z]{2}) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", readme, re.MULTILINE
    )
    counts = {name: read(name)["locale"].value_counts() for name in TABLES}
    locales = {locale for count in counts.values() for locale in count.index}
    assert {locale: tuple(map(int, cells)) for locale, *cells in rows} == {
        locale: tuple(int(counts[name].get(locale, 0)) for name in TABLES) for locale in locales
    }
    scenes = read("dialogue")["scene"].nunique()
    assert f"{scenes} short scenes" in readme


def test_readme_names_every_column():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    missing = {(name, column) for name in TABLES for column in read(name) if f"`{column}`" not in readme}
    assert missing == set()


def test_readme_example_runs(monkeypatch):
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(FOLDER)
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})


# -- clips -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sounds():
    """Samples and rate in Hz of each clip, by its id."""
    return {row.id: soundfile.read(FOLDER / row.path) for row in read("clips").itertuples()}


def seconds_a_character(sounds):
    clips = read("clips").set_index("id")["text"]
    return {name: len(samples) / rate_hz / len(clips[name]) for name, (samples, rate_hz) in sounds.items()}


def test_the_table_of_clips_and_their_folder_name_the_same_files():
    clips = read("clips")
    assert list(clips.columns) == ["id", "path", "locale", "speaker", "text"]
    assert clips["path"].tolist() == [f"clips/{name}.flac" for name in clips["id"]]
    assert set(clips["path"]) == {f"clips/{path.name}" for path in (FOLDER / "clips").iterdir()}


def test_clips_are_small_mono_flac_files_of_a_few_seconds():
    for path in (FOLDER / "clips").iterdir():
        info = soundfile.info(path)
        assert (info.format, info.subtype) == ("FLAC", "PCM_16"), path.name
        assert (info.samplerate, info.channels) == (24_000, 1), path.name
        assert 2 <= info.duration <= 5, path.name
    assert sum(path.stat().st_size for path in (FOLDER / "clips").iterdir()) < 1_200_000


def test_clips_are_speech_of_usual_loudness_from_end_to_end(sounds):
    for name, (samples, rate_hz) in sounds.items():
        f0_hz, _ = f0_track(samples, rate_hz)
        assert -35 < measure_loudness_lufs(samples, rate_hz) < -10, name
        assert measure_clipped_fraction(samples) == 0, name
        assert (f0_hz > 0).mean() > 0.25, name


def test_the_pause_is_in_its_clip_alone(sounds):
    longest = {
        name: max((end_s - start_s for start_s, end_s in find_silences(*sound)), default=0.0)
        for name, sound in sounds.items()
    }
    assert 0.8 < longest.pop("en-pause") < 1.1
    assert max(longest.values()) < 0.5


def test_the_fast_clip_is_the_fastest_and_the_slow_one_the_slowest(sounds):
    paces = seconds_a_character(sounds)
    del paces["en-pause"]
    assert min(paces, key=paces.get) == "en-fast"
    assert max(paces, key=paces.get) == "en-slow"
    assert paces["en-slow"] > 2 * paces["en-fast"]


def test_the_question_rises_at_its_end_and_the_statement_does_not(sounds):
    def rise(name):
        f0_hz, times_s = f0_track(*sounds[name], highest_hz=350)
        heard_hz = f0_hz[f0_hz > 0]
        last_hz = heard_hz[times_s[f0_hz > 0] > times_s[-1] - 0.4]
        return np.median(last_hz[-5:]) / last_hz.min()

    assert rise("en-question") > 1.25
    assert rise("en-statement") < 1.1


def test_the_sample_video_is_a_small_dense_dialogue_with_its_truth():
    path = FOLDER / "dub_sample.webm"
    seconds = media.probe_medium(path, max_seconds=100)
    truth, _ = find_speech(subtitles.read_subtitles((FOLDER / "dub_sample.srt").read_text(encoding="utf-8")))
    assert path.stat().st_size <= 1_000_000
    assert 40 <= seconds <= 65
    assert media.find_container(path) == "webm"
    assert [cue.speaker for cue in truth] == ["Daniel", "Alice"] * 7
    assert sum(cue.end_ms - cue.start_ms for cue in truth) >= 650 * seconds
    gaps_ms = [later.start_ms - cue.end_ms for cue, later in itertools.pairwise(truth)]
    assert 0 < np.median(gaps_ms) <= 500
    assert truth[-1].end_ms < 1000 * seconds


def make_clips(*arguments):
    script = FOLDER.parent / "scripts/make-clips"
    env = {key: value for key, value in os.environ.items() if not key.startswith("SPEECHFRAME_")}
    return subprocess.run(
        [sys.executable, script, *arguments],
        capture_output=True, text=True, env=env, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_the_script_still_makes_these_clips():
    made = make_clips("--check")
    assert (made.returncode, made.stdout) == (0, "8 clips are as they are spoken now\n"), made.stderr


@pytest.mark.slow
def test_the_script_says_which_clips_are_not_its_own(tmp_path):
    for name in ("clips.csv", "clips"):
        (shutil.copytree if name == "clips" else shutil.copy)(FOLDER / name, tmp_path / name)
    samples, rate_hz = soundfile.read(tmp_path / "clips/en-fast.flac")
    soundfile.write(tmp_path / "clips/en-fast.flac", samples[::-1], rate_hz)
    soundfile.write(tmp_path / "clips/en-slow.flac", samples[:-1], rate_hz)
    (tmp_path / "clips/en-pause.flac").write_bytes(b"nothing")
    (tmp_path / "clips/en-question.flac").unlink()
    (tmp_path / "clips/other.flac").touch()
    # The same samples, in a file of other bytes.
    samples, rate_hz = soundfile.read(tmp_path / "clips/pt-numbers.flac", dtype="int16")
    soundfile.write(tmp_path / "clips/pt-numbers.flac", samples, rate_hz, compression_level=0.0)
    table = (tmp_path / "clips.csv").read_text(encoding="utf-8").replace("Friday", "Monday")
    (tmp_path / "clips.csv").write_text(table, encoding="utf-8")
    made = make_clips("--check", "--folder", str(tmp_path))
    assert made.returncode == 1, made.stderr
    said = dict(line.split(" ", 1) for line in made.stdout.splitlines())
    assert set(said) == {"clips.csv", "clips/other.flac"} | {
        f"clips/en-{name}.flac" for name in ("fast", "slow", "pause", "question")
    }
    assert said["clips.csv"] == "differs"
    assert re.fullmatch(r"differs by up to 0\.\d+ of full scale", said["clips/en-fast.flac"])
    assert "samples at 24000 Hz, now" in said["clips/en-slow.flac"]
    assert said["clips/en-pause.flac"] == "is not audio"
    assert said["clips/en-question.flac"] == "is missing"
    assert said["clips/other.flac"] == "is not one of the clips"
