"""Strings of files as rows: ids, locales, states, plurals, cues joined by time, and the history of changed strings."""

import re
import time
from pathlib import Path

import pandas as pd
import pytest

import speechframe as spf
from speechframe.strings.entries import is_usable_state
from speechframe.strings.plurals import get_plural_rule

FILES = Path(__file__).parent / "files"
FILM = {locale: FILES / f"film/film.{locale}.srt" for locale in ("en-US", "de-DE", "fr-FR", "es-ES", "ja-JP")}


def read(files, **given):
    return spf.read_strings(files, progress=False, **given)


def put(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def srt(*cues):
    """Return an SRT file of cues (start in s, end in s, text)."""

    def show(seconds):
        return f"00:{int(seconds) // 60:02}:{int(seconds) % 60:02},{round(seconds * 1000) % 1000:03}"

    return "\n".join(
        f"{n}\n{show(start)} --> {show(end)}\n{text}\n" for n, (start, end, text) in enumerate(cues, 1)
    )


def test_each_locale_has_its_own_plural_forms_and_states():
    strings = read({locale: FILES / f"django/{locale}.po" for locale in ("ar", "de", "ja", "ru")}).set_index(
        "id"
    )
    days = strings.filter(like="day[", axis=0)
    assert days["form"].tolist() == [0, 1, 2, 3, 4, 5]
    assert days["locales"].tolist() == [None, ["ar", "de", "ru"], ["ar", "ru"], ["ar", "ru"], ["ar"], ["ar"]]
    assert (days["text"].iloc[0], days["text"].iloc[5]) == ("%(num)d day", "%(num)d days")
    assert days["ru"].notna().sum() == 4
    assert strings.loc["verb|May", ["context", "text", "de"]].tolist() == ["verb", "May", "Darf"]
    assert strings.loc["Theme", ["state.de", "state.ru"]].tolist() == ["fuzzy", "untranslated"]
    assert strings.attrs["notes"][0] == "2 obsolete entries of ar.po: no rows"
    counts = [get_plural_rule(one)[0] for one in ("ar", "de-AT", "ja", "pl", "pt_BR", "sl")]
    assert counts == [6, 2, 1, 3, 2, 4]


def test_a_target_in_a_state_of_work_is_not_usable():
    strings = read(FILES / "validators.xlf").set_index("id")
    state = strings["state"]
    assert [state[one] for one in ("7", "8", "9", "14", "16", "18", "4")] == [
        "needs-translation", "needs-review-translation", "untranslated", "no", "untranslated", "approved", "final",
    ]  # fmt: skip
    usable = set(strings.index[[is_usable_state(one) for one in state]])
    assert usable == set(strings.index) - {"7", "8", "9", "10", "16", "17"}
    assert strings.loc["7", "de"] == strings.loc["7", "text"]
    assert strings.loc["12", "text"] == "Tap <b>once</b> to go on."
    assert set(strings["source_locale"]) == {"en"}


def test_cues_are_joined_by_time_and_cues_without_a_partner_are_counted():
    cues = read({**FILM, "pt-BR": FILES / "film/film.pt-BR.vtt"}).set_index("id")
    assert cues.loc["13", ["text", "de-DE"]].tolist() == ["Wait!", ""]
    assert cues.loc["14", "de-DE"] == "Ich habe etwas gehört."
    assert cues.loc["de-DE:15", ["text", "de-DE", "fr-FR"]].tolist() == ["", "Untertitel: Beispiel", ""]
    assert cues.loc["10", ["es-ES", "pt-BR"]].tolist() == [
        "Trae la lámpara & sígueme.",
        "Traga a lâmpada &amp; me siga.",
    ]
    assert cues.loc["5", ["character", "pt-BR"]].tolist() == ["Anna", "Você trancou a porta?"]
    assert cues.loc["3", ["text", "start_s", "slot_s", "gap_s"]].tolist() == [
        "<i>The light went out\nat half past nine.</i>",
        5.5,
        2.7,
        0.8,
    ]
    assert sum("without a cue at that time" in note for note in cues.attrs["notes"]) == 3
    assert any("Windows-1252" in note for note in cues.attrs["notes"])
    pattern = read(str(FILES / "film/film.{locale}.srt"), source_locale="en-US").set_index("id")
    assert pattern["ja-JP"].tolist() == cues["ja-JP"].tolist()


def test_inserted_and_changed_cues_leave_the_ids_of_the_others(tmp_path):
    old = [
        (4 * n, 4 * n + 3, text)
        for n, text in enumerate(["One", "Yes.", "Two", "Yes.", "Three", "Four", "Five", "Six"])
    ]
    new = [
        *old[:2],
        (8, 9, "Yes."),
        (9.5, 10, "Brand new"),
        *((start + 5, end + 5, text) for start, end, text in old[2:]),
    ]
    new[6] = (*new[6][:2], "Tree")
    del new[8]
    before = read(put(tmp_path / "film.srt", srt(*old)))
    after = read(put(tmp_path / "film.srt", srt(*new)), previous=before)
    found = dict(zip(after["text"], after["id"], strict=True))
    assert {text: found[text] for text in ("One", "Two", "Tree", "Four", "Six")} == {
        "One": "1",
        "Two": "3",
        "Tree": "5",
        "Four": "6",
        "Six": "8",
    }
    assert after["id"].tolist() == ["1", "2", "3~2", "4~2", "3", "4", "5", "6", "8"]
    assert after["previous_basis"].tolist()[6:8] == ["time", "text and time"]
    assert after["previous_id"].isna().sum() == 2
    assert "compared with previous: 1 changed, 2 new, 1 removed" in after.attrs["notes"]
    again = read(tmp_path / "film.srt", previous=after)
    assert again["id"].tolist() == after["id"].tolist()


def test_changed_po_strings_keep_their_ids(tmp_path):
    old = read(FILES / "django/de.po")
    text = (FILES / "django/de.po").read_text(encoding="utf-8")
    text = text.replace('msgid "Log in"', '#| msgid "Log in"\nmsgid "Sign in to the site"')
    text = text.replace('"This field is required."', '"This field is really required."').replace(
        '"%d files"', '"%d files!"'
    )
    text = text.replace('msgid "Log out"', 'msgid "Something else"')
    new = read(put(tmp_path / "de.po", text), previous=old).set_index("unit")
    assert new.loc["Sign in to the site", ["id", "previous_basis"]].tolist() == ["Log in", "previous msgid"]
    assert new.loc["This field is really required.", ["id", "previous_basis"]].tolist() == [
        "This field is required.",
        "similar",
    ]
    assert new.loc["Something else", "id"] == "Something else"
    assert pd.isna(new.loc["Something else", "previous_id"])
    assert (new["previous_basis"] == "id").sum() == len(old) - 3
    assert "removed string: 'Log out'" in new.attrs["notes"][-1]
    # The id that was inherited goes on, and the file is still written by its own ids.
    third = read(tmp_path / "de.po", previous=new.reset_index())
    assert third["id"].tolist() == new["id"].tolist()
    third.loc[third["id"] == "Log in", "de"] = "Einloggen"
    third = pd.concat([third, third.tail(1).assign(id="gone", unit="gone")])
    report = spf.write_strings(
        third, template=tmp_path / "de.po", out=tmp_path / "new.po", locale="de", progress=False
    )
    assert "1 row without a place in de.po: not written" in report.notes
    assert 'msgid "Sign in to the site"\nmsgstr "Einloggen"\n' in (tmp_path / "new.po").read_text(
        encoding="utf-8"
    )


def test_files_of_a_list_are_apart(tmp_path):
    strings = read([FILES / "django/de.po", FILES / "validators.xlf", FILM])
    assert strings["id"].is_unique
    assert {"de.po:Settings", "validators.xlf:1", "film.en-US.srt:1"} <= set(strings["id"])
    strings.loc[strings["id"] == "validators.xlf:1", "de"] = "Falsch!"
    report = spf.write_strings(
        strings, template=FILES / "validators.xlf", out=tmp_path / "v.xlf", locale="de", progress=False
    )
    assert (report.written, report.unchanged) == (1, 14)
    assert report.left == {"no text": 2, "not to be translated": 1}


def test_a_template_gets_another_locale_with_its_plural_forms(tmp_path):
    strings = read({"de": FILES / "django/de.po", "ar": FILES / "django/ar.po"})
    report = spf.write_strings(
        strings, template=FILES / "django/de.po", out=tmp_path / "ar.po", locale="ar", progress=False
    )
    assert (report.written, report.left) == (24, {"no text": 2})
    made, ours = read(tmp_path / "ar.po"), read(FILES / "django/ar.po")
    filled = ours["ar"] != ""
    assert made["ar"][filled].tolist() == ours["ar"][filled].tolist()
    assert (
        len(re.findall(r"^msgstr\[5\]", (tmp_path / "ar.po").read_text(encoding="utf-8"), re.MULTILINE)) == 2
    )
    frame = read(FILES / "validators.xlf").assign(**{"pt-BR": "Não <b>&</b>"})
    report = spf.write_strings(
        frame, template=FILES / "validators.xlf", out=tmp_path / "pt.xlf", locale="pt-BR", progress=False
    )
    assert report.left == {"not to be translated": 1, "broken markup": 1}
    made = read(tmp_path / "pt.xlf").set_index("id")
    assert made.loc[["1", "7", "16"], "pt-BR"].tolist() == ["Não <b>&</b>"] * 3
    assert made.loc["7", "state"] == "translated"
    assert "                <source>Please choose a voice.</source>\n                <target>Não" in (
        tmp_path / "pt.xlf"
    ).read_text(encoding="utf-8")


def test_only_changed_cues_are_wrapped_and_long_ones_are_counted(tmp_path):
    film = read(FILM)
    film.loc[film["id"] == "14", "de-DE"] = "Ich habe <i>ganz bestimmt</i> etwas gehört, und es kam von oben."
    film.loc[film["id"] == "7", "de-DE"] = "Dann hat noch jemand einen Schlüssel. " * 5
    report = spf.write_strings(
        film, template=FILM["de-DE"], out=tmp_path / "de.srt", locale="de-DE", progress=False
    )
    assert (report.written, report.unchanged, report.too_long, report.too_fast) == (2, 13, 1, 2)
    text = (tmp_path / "de.srt").read_text(encoding="utf-8")
    assert (
        "Ich habe <i>ganz bestimmt</i> etwas\ngehört, und es kam von oben.\n" in text
        or "gehört,\nund" in text
    )
    assert "- Anna?\n- Hier bin ich.\n" in text
    film["ja-JP"] = film["ja-JP"].mask(film["id"] == "1", "そこに誰かいますか、返事をしてください。")
    spf.write_strings(film, template=FILM["en-US"], out=tmp_path / "ja.srt", locale="ja-JP", progress=False)
    assert "そこに誰かいますか、\n返事をしてください。\n" in (tmp_path / "ja.srt").read_text(encoding="utf-8")


BOMB = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b SYSTEM "file:///etc/passwd">]><xliff version="1.2"/>'
PO = 'msgid ""\nmsgstr "{}"\n\nmsgid "a"\nmsgstr "b"\n'
BAD = [
    ("a.xlf", BOMB, "document type"),
    ("a.xlf", '<xliff version="2.0"/>', "is XLIFF 2.0; allowed: XLIFF 1.2"),
    ("a.xlf", "<xliff><file>", "line 1 is not valid XML"),
    ("a.arb", "{}", r"'.arb'.*which is not read; allowed: .*\.po"),
    (
        "a.po",
        PO.format("Language: de\\n") + '\nmsgid "a"\nmsgstr "c"\n',
        "lines 4 and 7 have the same id 'a'",
    ),
    ("a.po", PO.format("Language: xx-klingon\\n"), "not a locale"),
    ("a.po", PO.format(""), "does not state their locale"),
    (
        "a.po",
        'msgid ""\nmsgstr "Language: tlh\\n"\n\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n',
        "plural forms of 'tlh' are not known",
    ),
    ("a.po", 'msgid "a\nmsgstr "b"\n', "line 1 is not a line of a PO file"),
    ("a.srt", "no cue", "no cues"),
    ("a.csv", "id,text\n1,a\n1,b\n", "lines 2 and 3 have the same id '1'"),
    ("a.csv", "x,text\n1,a\n", "has no column 'id'"),
]


@pytest.mark.parametrize(("name", "text", "words"), BAD)
def test_a_bad_file_is_refused_with_the_reason(tmp_path, name, text, words):
    with pytest.raises(spf.InvalidRows, match=words):
        read(put(tmp_path / name, text))


def test_reading_and_matching_take_time_in_proportion_to_the_rows(tmp_path):
    def measure(count):
        text = "".join(f'msgid "Text number {n}"\nmsgstr "Text {n}"\n\n' for n in range(count))
        path, new = tmp_path / f"{count}.po", tmp_path / f"{count}-new.po"
        put(path, PO.format("Language: de\\n") + text)
        put(new, path.read_text().replace('msgid "Text number 12', 'msgid "Other text 12', 20))
        begin = time.process_time()
        assert len(read(new, previous=read(path))) == count + 1
        return time.process_time() - begin

    few_s = measure(3_000)
    assert measure(12_000) < 10 * few_s  # a time that grows with the square would be 16 times as long
