"""Every notebook runs from top to bottom on a real kernel, twice, and shows what it promises."""

import base64
import io
import itertools
import re
import runpy
import struct
from pathlib import Path
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = ROOT / "docs" / "notebooks"
SMALLEST_PLOT_BYTES = 20_000
WIDGET = "application/vnd.jupyter.widget-view+json"

MAKE_DOCS = runpy.run_path(str(ROOT / "scripts" / "make-docs"))

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

OF_RUNS = re.compile(
    r"^(?:(?:generate|change_voice|translate)\b.*? on |run folder: |stopped \(|your columns |words of ).*\n?",
    re.MULTILINE,
)
"""Lines that runs write beside their bars."""

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def execute(tmp_path_factory):
    """Runs a notebook as `make docs` does, each in a folder of its own."""
    folders = {path: tmp_path_factory.mktemp(path.stem) for path in NOTEBOOKS}
    kept = {}

    def run(path, *, again=False):
        if path not in kept or again:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("JUPYTER_RUNTIME_DIR", str(folders[path] / "runtime"))
                kept[path] = MAKE_DOCS["executed"](path, folders[path])
        return kept[path]

    return run


def outputs(notebook, cell_id=None):
    return [
        output
        for cell in notebook.cells
        if cell.cell_type == "code" and cell_id in {None, cell.id}
        for output in cell.outputs
    ]


@by_name
def test_it_runs_without_errors_or_warnings(execute, path):
    notebook = execute(path)
    assert [output for output in outputs(notebook) if output.output_type == "error"] == []
    # Front ends show it in red boxes.
    assert streams(notebook, "stderr") == []


@by_name
def test_its_page_in_docs_has_what_it_shows(execute, path):
    there = (PAGES / f"{path.stem}.md").read_text(encoding="utf-8")
    made, _ = MAKE_DOCS["page_of"](path, execute(path), there)
    assert made == there, "`make docs` makes it anew"


@by_name
def test_run_all_works_again_on_what_the_first_time_left(execute, path):
    before = printed(execute(path))
    notebook = execute(path, again=True)
    assert [output for output in outputs(notebook) if output.output_type == "error"] == []
    assert _without_figures(printed(notebook)) == _without_figures(before)


def _without_figures(texts):
    # Files are named after the process that wrote them, and sizes vary by a few bytes.
    return [sorted(re.sub(r"\b[0-9a-f]{6}-|[\d.,]+|[ \t]+", " ", text).splitlines()) for text in texts]


@by_name
def test_plots_are_there(execute, path):
    notebook = execute(path)
    plotting = [c.id for c in notebook.cells if c.cell_type == "code" and "plt.show()" in c.source]
    for cell_id in plotting:
        (png,) = [
            base64.b64decode(o.data["image/png"])
            for o in outputs(notebook, cell_id)
            if "image/png" in o.get("data", {})
        ]
        width, height = struct.unpack(">II", png[16:24])
        assert png.startswith(b"\x89PNG")
        assert len(png) > SMALLEST_PLOT_BYTES
        assert width > 600
        assert height > 200


# -- what the first notebook promises to a newcomer ----------------------------------


@pytest.fixture
def first(execute):
    return execute(ROOT / "notebooks/01-first-dataset.ipynb")


@pytest.mark.parametrize("cell_id", ["say", "say-more", "listen", "change-made"])
def test_clips_are_players(first, cell_id):
    shown = [html for html in results(first, cell_id) if "<audio controls" in html]
    assert len(shown) == 1
    assert len(shown[0]) > 10_000


def test_the_first_twenty_are_kept(first):
    assert "114 calls in" in words(first, "rest")


def test_one_changed_line_is_one_call(first):
    assert "0 new, 1 changed, 0 removed, 135 unchanged" in words(first, "change")


def test_the_budget_stops_the_run_and_a_higher_one_ends_it(first):
    assert "stopped because of budget" in words(first, "budget")
    assert "12 rows: 12 done" in words(first, "budget-more")


def test_bad_rows_are_listed(first):
    said = words(first, "bad-rows")
    assert said.count("invalid") == 2 * said.count("INVALID_REQUEST") > 0


def test_other_tools_read_the_files(first):
    assert "minutes" in words(first, "duckdb")
    assert "135 clips; the first one has" in words(first, "datasets")


# -- what the one on voices promises -------------------------------------------------


@pytest.fixture
def voices(execute):
    return execute(ROOT / "notebooks/02-another-voice.ipynb")


@pytest.mark.parametrize(
    ("cell_id", "players"),
    [("source", 1), ("after", 1), ("listen", 2), ("flat", 1), ("accent", 2), ("spoken", 2)],
)
def test_clips_and_changed_clips_are_players(voices, cell_id, players):
    shown = [html for html in results(voices, cell_id) if re.search("<audio +controls", html)]
    assert len(shown) == players
    assert min(map(len, shown)) > 10_000


def test_looking_at_clips_first_tells_their_price(voices):
    assert "8 calls, 25.4 s of audio, 381.5 credits" in words(voices, "plan")


def test_clips_come_out_at_the_pitch_of_the_voice_that_was_asked_for(voices):
    pitch = frame(voices, "pitch")
    assert len(pitch) == 8
    for name in ("miles_hz", "target_hz"):
        by_voice = pitch.groupby("target" if name == "target_hz" else lambda _: "miles")[name]
        assert (by_voice.max() < 1.1 * by_voice.min()).all(), name
    assert pitch["source_hz"].max() > 2 * pitch["source_hz"].min()


def test_melody_is_kept_unless_it_is_flattened(voices):
    semitones = frame(voices, "range")
    assert semitones["kept"].between(0.8 * semitones["source"], 1.2 * semitones["source"]).all()
    assert (semitones["flattened"] < 0.6 * semitones["kept"]).all()


def test_wanted_lengths_are_met(voices):
    lengths = frame(voices, "length")
    assert len(lengths) == 5
    assert lengths["audio_seconds"].tolist() == lengths["slot_seconds"].tolist()
    assert (lengths["slot_seconds"] != lengths["source_seconds"]).all()


def test_every_way_of_changing_a_clip_costs_the_same_a_second(voices):
    costs = frame(voices, "ledger")
    assert len(costs) == 5
    assert (costs["credits_a_second"] == 15).all()


def test_clips_that_were_moved_cost_nothing_again(voices):
    assert "0 calls, 0 credits" in words(voices, "again")


def test_a_spoken_run_keeps_its_lengths_in_another_voice(voices):
    changed = frame(voices, "frame")
    assert changed["voice_id"].tolist() == ["en-US-hank"] * 3
    assert (changed["speech_audio_seconds"] / changed["audio_seconds"]).between(0.98, 1.02).all()


# -- what the one on choosing a voice promises ---------------------------------------

FOUR = ["en-US-nora", "en-US-miles", "en-US-ruby", "en-US-hank"]


@pytest.fixture
def choosing(execute):
    return execute(ROOT / "notebooks/03-compare-voices-and-listen.ipynb")


@pytest.mark.parametrize(
    ("cell_id", "shown"),
    [
        ("gallery", "VoiceGallery"),
        ("generate", "VoiceComparison: ready, 12 clips"),
        ("play", "ClipPlayer: 12 of 12 clips"),
        ("course", "RunDashboard"),
        ("browse", "DatasetBrowser: 36 of 36 rows"),
        ("test", "ListeningTest"),
    ],
)
def test_widgets_are_there_and_say_what_they_hold_without_one(choosing, cell_id, shown):
    widgets = [o.data for o in outputs(choosing, cell_id) if WIDGET in o.get("data", {})]
    assert len(widgets) == 1
    assert shown in widgets[0]["text/plain"]


def test_voices_to_choose_from_are_listed(choosing):
    assert set(FOUR) <= set(frame(choosing, "chosen")["voice_id"])
    assert all(voice in words(choosing, "gallery") for voice in FOUR)


def test_a_comparison_costs_what_it_said_before(choosing):
    price = float(re.search(r"([\d,.]+) credits", words(choosing, "compare"))[1].replace(",", ""))
    figures = frame(choosing, "figures")
    assert figures["credits"].sum() == price > 0
    assert (figures["pitch_hz"] > 50).all()


def test_what_was_rejected_is_made_once_more(choosing):
    assert words(choosing, "redo").startswith("1 call\n0 calls")
    before, after = (
        frame(choosing, cell_id).set_index("row_id")["is_current"] for cell_id in ("review", "redo")
    )
    assert before.all()
    assert after.to_dict() == {"01-en-US-nora": True, "10-en-US-ruby": False}


def test_pairs_sides_and_lines_are_balanced(choosing):
    balance = frame(choosing, "balance")
    assert len(balance) == 3
    assert (balance["a"] - balance["b"]).abs().max() <= 1
    assert len(set(balance["a"] + balance["b"])) == 1
    assert set(balance["lines"]) == {12}


def test_power_grows_with_listeners_and_with_the_effect(choosing):
    powers = frame(choosing, "power").set_index("listeners")
    assert (powers.loc[40] >= powers.loc[10]).all()
    assert (powers["80% for one"] > powers["60% for one"]).all()
    # What is said under the table.
    assert powers.loc[20, "80% for one"] > 0.9
    assert 0.5 < powers.loc[20, "70% for one"] < 0.8
    assert powers.loc[20, "60% for one"] < 0.25


def test_a_served_page_names_no_voice(choosing):
    said = words(choosing, "served")
    assert "20 links; listener-01 has done 0 of 20" in said
    assert "voices that are named in the page: []" in said


def test_simulated_listeners_vote_through_the_door_of_the_page(choosing):
    assert "20 began, 400 votes stored, 0 refused" in words(choosing, "simulated")
    assert "400 votes of 20 simulated listeners" in words(choosing, "votes")


def test_only_the_lazy_listener_is_screened_out(choosing):
    assert "Screening: 1 of 20 listeners were screened out: listener-20 (side)" in words(choosing, "results")


def test_the_preference_that_was_made_up_is_found(choosing):
    truth = frame(choosing, "truth")
    assert truth.sort_values("strength", ascending=False)["condition"].tolist() == FOUR[:3]
    assert truth["is_inside"].all()


def test_one_of_the_pairs_is_missed_as_the_text_says(choosing):
    row = "<td>en-US-(\\w+)</td><td>en-US-(\\w+)</td>" + 4 * "<td>[^<]*</td>" + "<td>([^<]*)</td>"
    plain = re.sub(r"<td[^>]*>", "<td>", words(choosing, "results"))
    pairs = re.findall(row, plain)[:3]
    assert len(pairs) == 3
    missed = [pair for *pair, p in pairs if float(p.removeprefix("&lt;")) > 0.05]
    assert missed == [["nora", "miles"]]


def test_the_paragraph_on_methods_is_whole(choosing):
    said = words(choosing, "methods")
    assert said.startswith("20 listeners took part in a test by paired preference (A/B)")
    assert "References" in said


# -- what the one on localization promises -------------------------------------------


@pytest.fixture
def localization(execute):
    return execute(ROOT / "notebooks/04-first-localization.ipynb")


def test_the_pairs_of_the_service_are_listed(localization):
    pairs = frame(localization, "offered")
    assert ("en", "pt-BR") in set(zip(pairs["source"], pairs["target"], strict=True))


def test_a_dry_run_tells_what_a_translation_costs(localization):
    planned = re.search(r"18 rows, 954 characters, (\d+) credits", words(localization, "plan"))
    assert f"{planned[1]} credits in 18 attempts" in words(localization, "translate")


def test_translations_keep_placeholders_and_terms(localization):
    translated = frame(localization, "look")
    assert len(translated) == 18
    plurals = translated["text"].str.contains(", plural,")
    assert (translated["placeholders_ok"].astype(str) == (~plurals).astype(str)).all()
    assert set(translated["glossary_ok"].dropna()) <= {"True", True}
    assert set(translated["route"]) == {"en>pt-BR"}


def test_rows_for_a_person_are_the_plurals_and_the_long_buttons(localization):
    why = frame(localization, "person").set_index("id")["why"]
    assert why.loc[["ui-002", "ui-006", "ui-010"]].tolist() == [
        "suspect, placeholders, plural",
        "suspect, placeholders, plural",
        "placeholders, plural",
    ]
    assert "long for a button" in set(why)


def test_corrected_rows_keep_their_placeholders(localization):
    assert "18 of 18 rows have all their placeholders" in words(localization, "correct")
    assert "{# arquivos" in " ".join(frame(localization, "person-read")["by_a_person"])


def test_translations_are_spoken_in_their_language(localization):
    spoken = frame(localization, "speak")
    assert len(spoken) == 12
    assert set(spoken["speech_locale"]) == {"pt-BR"}
    assert set(spoken["status"]) == {"done"}
    assert [html for html in results(localization, "listen") if "<audio controls" in html]


def test_a_corrected_sentence_is_one_row_to_speak(localization):
    assert "0 new, 1 changed, 0 removed, 11 unchanged" in words(localization, "fix")
    assert "a lixeira" in words(localization, "fix")


def test_a_localization_costs_nothing_again(localization):
    assert words(localization, "again").startswith("0 calls")


def test_one_english_string_costs_its_own_translation_and_speech(localization):
    said = words(localization, "change")
    prices = [
        float(price) for price in re.findall(r"1 changed, 0 removed, 11 unchanged: (\d+) credits", said)
    ]
    more = frame(localization, "change-cost").set_index("run")["more"]
    assert len(prices) == 2
    assert [0.0, *prices] == more.loc[["app", "voiced", "speech"]].tolist()
    assert min(prices) > 0


# -- what the one on streams promises ------------------------------------------------


@pytest.fixture
def streaming(execute):
    return execute(ROOT / "notebooks/05-stream-as-it-is-written.ipynb")


@pytest.mark.parametrize("cell_id", ["heard", "writer"])
def test_streams_are_players(streaming, cell_id):
    (shown,) = [html for html in results(streaming, cell_id) if re.search("<audio +controls", html)]
    assert len(shown) > 100_000


def test_the_first_audio_of_a_long_text_comes_long_before_its_last(streaming):
    waits = frame(streaming, "first")
    assert waits["sentences"].tolist() == [1, 3, 6, 12]
    longest = waits.iloc[-1]
    assert longest["first_audio_ms"] < longest["all_of_it_ms"] / 2
    assert longest["audio_seconds"] > 5 * waits["audio_seconds"][0]


def test_what_is_spoken_as_it_is_written_begins_sooner_and_has_no_gaps(streaming):
    ways = frame(streaming, "arrivals").set_index("spoken")
    sooner, later = ways.loc["as it is written"], ways.loc["when it is written"]
    assert sooner["first_audio_s"] < later["first_audio_s"] / 2
    assert sooner["audio_s"] == pytest.approx(later["audio_s"], rel=0.1)
    assert (
        float(re.search(r"shortest lead while it was written: (-?[\d.]+) s", words(streaming, "plot"))[1]) > 0
    )


def test_turns_share_a_socket_and_wait_for_nobody(streaming):
    assert "4 turns under way over 1 socket" in words(streaming, "turns")
    turns = frame(streaming, "turns").set_index("turn")
    assert turns["complete"].all()
    assert turns.loc["quick", "first_audio_s"] < turns.loc["slow", "first_audio_s"]
    assert turns.loc["slow", "first_audio_s"] < turns.loc["slow, by sentences", "first_audio_s"]


@pytest.mark.parametrize(
    ("cell_id", "error"), [("interrupt", "StreamBroken"), ("broken", "StreamBroken"), ("writer", "ConnectionError")]
)  # fmt: skip
def test_broken_streams_keep_what_came(streaming, cell_id, error):
    said = words(streaming, cell_id)
    assert said.startswith(f"{error}: ")
    assert float(re.search(r"kept: .*?([\d.]+) s of audio", said)[1]) > 0


def test_a_broken_stream_is_no_file(streaming):
    assert "a file: False" in words(streaming, "broken")


def test_words_of_streamed_rows_are_aligned(streaming):
    spoken = frame(streaming, "run")
    assert spoken["status"].tolist() == ["done"]
    assert set(spoken["words_basis"]) == {"aligned"}
    found = frame(streaming, "words")
    assert found["word"].tolist()[:3] == ["Good", "morning", "and"]
    assert (found["end_ms"] > found["start_ms"]).all()


def results(notebook, cell_id):
    return [o.data.get("text/html", "") for o in outputs(notebook, cell_id) if "data" in o]


def frame(notebook, cell_id):
    """The one frame that a cell shows; its index is a column without a name."""
    (shown,) = [html for html in results(notebook, cell_id) if "<table" in html]
    table = ET.fromstring(re.search("<table.*</table>", shown, re.DOTALL)[0])
    rows = [["".join(cell.itertext()) for cell in row] for row in table.iterfind("tbody/tr")]
    names = [cell.text or "" for cell in table.find("thead/tr")]
    return pd.read_csv(io.StringIO(pd.DataFrame(rows, columns=names).to_csv(index=False)))


def streams(notebook, name, cell_id=None):
    """What each cell wrote, whole: a kernel sends it in any number of pieces."""
    written = [
        "".join(o.text for o in outputs(notebook, cell.id) if o.output_type == "stream" and o.name == name)
        for cell in notebook.cells
        if cell_id in {None, cell.id}
    ]
    return [text for text in written if text]


def printed(notebook, cell_id=None):
    """What the code of each cell printed, without what runs say of themselves."""
    texts = (OF_RUNS.sub("", text) for text in streams(notebook, "stdout", cell_id))
    return [text for text in texts if text]


def words(notebook, cell_id):
    """Everything a cell shows as text."""
    shown = (
        printed(notebook, cell_id),
        OF_RUNS.findall("\n".join(streams(notebook, "stdout", cell_id))),
        results(notebook, cell_id),
    )
    return "\n".join(itertools.chain(*shown))
