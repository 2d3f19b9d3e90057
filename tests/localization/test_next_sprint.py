"""Two sprints of a localization, from the files of strings to the written files: only the changes are made."""

import difflib
import json
from pathlib import Path

import pandas as pd
import pytest

import speechframe as spf

SPRINTS = Path(__file__).parents[2] / "datasets" / "localization"
TARGETS = ["de-DE", "ja-JP"]
FILL = {
    "de": {"size": "zwei Gigabyte"},
    "ja": {"size": "2ギガバイト", "count": "3"},
    "*": {
        "1": "Test", "name": "Ana", "days": "12", "percent": "40", "minutes": "5", "seconds": "30",
        "date": "1.3.", "limit": "8",
    },
}  # fmt: skip
CORRECTED = {
    "validators.xlf:code.wrong/de-DE": "Falscher Code. Ein Versuch bleibt Ihnen.",
    "film.en-US.srt:12/de-DE": "Mehr, als andere Gemüse können.",
}
REJECTED = "app.de.po:Sort by date/ja-JP"
STALE = ["validators.xlf:date.past/de-DE", "validators.xlf:password.weak/de-DE"]


class Job:
    """The runs of a localization in one folder."""

    def __init__(self, folder, settings):
        self.folder, self.options = folder, {"service": settings, "progress": False}
        self.template = None

    def make(self, sprint, **arguments):
        """Translate and speak the strings of a sprint."""
        files = self.template = SPRINTS / f"sprint-{sprint}"
        sources = [
            {"de-DE": files / "app.de.po", "ja-JP": files / "app.ja.po"},
            files / "validators.xlf",
            {"en-US": files / "film.en-US.srt", "de-DE": files / "film.de-DE.srt"},
        ]
        previous = self.folder / "tr" if sprint > 1 else None
        strings = spf.read_strings(sources, previous=previous, source_locale="en-US", progress=False)
        characters = pd.read_csv(files / "characters.csv", dtype=str).set_index("cue")["character"]
        strings["character"] = strings["unit"].map(characters).where(strings["file"] == "film.en-US.srt")
        strings["count"] = strings["form"].map({0: "1", 1: "3"})
        run_dir = self.folder / "tr"
        self.texts = spf.translate(
            strings, targets=TARGETS, run_dir=run_dir, on_invalid="skip", **self.options
        )
        fixed = {
            "text": "translated_text", "spoken": True, "fill": FILL, "locale": spf.col("locale"), "slot": "slot_s",
            "cast": files / "cast.csv", "pronunciations": files / "words.csv", "lock": "kept",
        }  # fmt: skip
        return spf.generate(self.texts, run_dir=self.folder / "audio", **self.options | fixed | arguments)

    def write(self, name, locale, audio):
        """Write a file with its corrections, and return the lines that differ from its template."""
        out = self.folder / name
        report = spf.write_strings(
            self.texts,
            template=self.template / name,
            out=out,
            locale=locale,
            corrections=audio,
            progress=False,
        )
        self.left = report.left
        old, new = (path.read_text(encoding="utf-8").splitlines() for path in (self.template / name, out))
        return [line for line in difflib.ndiff(old, new) if line[0] in "+-"]


def save_reviews(folder, run, reviews):
    """Write reviews as a review page saves them: (verdict, corrected text) by row id."""
    hashes = run.to_pandas().set_index("row_id")["sha256"]
    lines = [
        {"row_id": row_id, "sha256": hashes[row_id], "verdict": verdict, "comment": None, "corrected_text": text,
         "rating": None, "reviewed_at": "2026-03-01T10:00:00Z"}
        for row_id, (verdict, text) in reviews.items()
    ]  # fmt: skip
    saved = {
        "speechframe_reviews": 1,
        "run_id": run.run_id,
        "title": "",
        "reviewer": "Mia",
        "reviews": lines,
    }
    folder.mkdir()
    (folder / "reviews.json").write_text(json.dumps(saved), encoding="utf-8")
    return folder


def list_calls(run):
    """Return the request keys of all calls of a run so far."""
    return set(run.ledger["request_key"])


def list_made(run, before):
    """Return the ids of the rows whose audio is of a call that was not made before.

    Each such row had one call, and a second call if it was fitted to its slot.
    """
    rows, new = spoken(run), list_calls(run) - before
    made = rows[rows["request_key"].isin(new)]
    assert len(new) == len(made) + (made["slot_status"] == "fitted").sum()
    return set(made.index)


def spoken(run):
    frame = run.to_pandas().set_index("row_id")
    return frame[frame["status"].isin(["done", "cached"])]


@pytest.mark.timeout(120)
def test_the_next_sprint_makes_exactly_the_changed_rows(service, tmp_path):
    job = Job(tmp_path, service.settings)
    audio = job.make(1)
    first = spoken(audio)
    assert len(first) == 196

    # No text in an unusable state is spoken.
    unusable = ["Ein Backup wird jede Nacht.", "Sprache des Textes", "文字起こし", "ブックマーク"]
    unusable += ["The file is damaged.", "This card number is not valid."]
    unusable += ["Der Code ist abgelaufen. Fordern Sie einen neuen an."]
    assert not first["spoken_text"].isin(unusable).any()

    # The reviewer keeps all audio but three lines, and corrects the texts of two of them.
    reviews = dict.fromkeys(first.index, ("keep", None)) | {REJECTED: ("reject", None)}
    reviews |= {row_id: ("reject", text) for row_id, text in CORRECTED.items()}
    assert audio.read_reviews(save_reviews(tmp_path / "reviews", audio, reviews)).empty
    before = list_calls(audio)
    audio = spf.resume(audio, redo="corrected", **job.options)
    corrected = spoken(audio)
    assert list_made(audio, before) == set(CORRECTED)
    assert corrected.loc[list(CORRECTED), "spoken_text"].to_dict() == CORRECTED

    # Only the corrected texts differ in the written files.
    for name, row_id in zip(("validators.xlf", "film.de-DE.srt"), CORRECTED, strict=True):
        lines = job.write(name, "de-DE", audio)
        assert [line[0] for line in lines] == ["-", "+"]
        assert CORRECTED[row_id] in lines[1]
    assert (job.write("app.ja.po", "ja-JP", audio), job.left) == ([], {"invalid": 4})

    # In the next sprint, the cast changes, too. Only rows with another text are made, and the rejected row.
    cast = pd.read_csv(SPRINTS / "sprint-2" / "cast.csv", dtype=str).replace({"sakura": "haruto"})
    before, old_texts = list_calls(audio), "".join(path.read_text() for path in job.template.iterdir())
    audio = job.make(2, cast=cast)
    second = spoken(audio)
    written = second["translated_text"]
    new = {row_id for row_id in second.index if written[row_id] not in old_texts}
    assert (list_made(audio, before), len(new)) == (new | {REJECTED}, 37)
    same = second.index.difference([*new, REJECTED])
    assert (second.loc[same, "sha256"] == corrected.loc[same, "sha256"]).all()
    assert (
        second.loc[[*new, REJECTED], "voice_id"]
        .isin(["de-DE-frieda", "de-DE-greta", "de-DE-emil", "ja-JP-haruto"])
        .all()
    )
    assert (
        second.loc[same, "held_back"].eq("voice") == second.loc[same, "voice_id"].eq("ja-JP-sakura")
    ).all()

    # A changed string keeps its id, also with a new msgid. So its former audio is at hand.
    changed = first.index.intersection([*new])
    assert len(changed) == 22
    for row_id in changed:
        assert audio.clip_of_call(second.loc[row_id, "last_kept"]).text == first.loc[row_id, "spoken_text"]

    # The stale texts are not spoken, and their kept audio is at hand.
    frame = audio.to_pandas().set_index("row_id")
    assert sorted(frame.index[frame["translation_state"] == "stale"]) == STALE
    assert set(frame.loc[STALE, "status"]) == {"skipped"}
    gone = "app.de.po:Skip silence/de-DE"  # fuzzy now, so that it has no usable text
    for row_id in [*STALE, gone]:
        last = audio.clip_of_call(frame.loc[row_id, "last_kept"])
        assert last.text == first.loc[row_id, "spoken_text"]

    # The files of the second sprint are written with the corrections of the first.
    for name in ("validators.xlf", "film.de-DE.srt"):
        assert [line[0] for line in job.write(name, "de-DE", audio)] == ["-", "+"]
    assert job.write("app.de.po", "de-DE", audio) == job.write("app.ja.po", "ja-JP", audio) == []

    # Nothing is left to do.
    count = len(audio.ledger)
    assert len(job.make(2, cast=cast).ledger) == count
