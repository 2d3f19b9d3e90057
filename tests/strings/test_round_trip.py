"""Texts that do not change are written back to the same bytes, and other texts change nothing else."""

import codecs
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import speechframe as spf

FILES = Path(__file__).parent / "files"
SAMPLES = [
    *(
        ("django/" + name, locale)
        for name, locale in (("ar.po", "ar"), ("de.po", "de"), ("ja.po", "ja"), ("ru.po", "ru"))
    ),
    ("validators.xlf", "de"),
    *((f"film/film.{locale}.srt", locale) for locale in ("de-DE", "en-US", "es-ES", "fr-FR", "ja-JP")),
    ("film/film.pt-BR.vtt", "pt-BR"),
]


def read(path, locale):
    frame = spf.read_strings(path, progress=False)
    return frame if locale in frame else frame.rename(columns={"text": locale})


def write(frame, template, out, locale):
    return spf.write_strings(frame, template=template, out=out, locale=locale, progress=False)


@pytest.mark.parametrize(("name", "locale"), SAMPLES)
def test_a_real_file_is_written_back_to_the_same_bytes(tmp_path, name, locale):
    out = tmp_path / Path(name).name
    report = write(read(FILES / name, locale), FILES / name, out, locale)
    assert out.read_bytes() == (FILES / name).read_bytes()
    assert (report.written, sum(report.left.values()) + report.unchanged >= 14) == (0, True)


@pytest.mark.parametrize(("name", "locale"), SAMPLES)
def test_one_changed_text_changes_only_its_lines(tmp_path, name, locale):
    frame, out = read(FILES / name, locale), tmp_path / Path(name).name
    frame.loc[frame.index[4], locale] = 'Brand <new> & "odd"'
    assert write(frame, FILES / name, out, locale).written == 1
    encoding = "cp1252" if "es-ES" in name else "utf-8"
    old, new = ((path.read_bytes().decode(encoding)).split("\n") for path in (FILES / name, out))
    changed = [(one, other) for one, other in zip(old, new, strict=True) if one != other]
    assert len(changed) == 1
    assert "Brand" in changed[0][1]
    assert changed[0][0].endswith("\r") == changed[0][1].endswith("\r")
    again = read(out, locale)
    assert again[locale].tolist() == frame[locale].tolist()


WORDS = st.text(st.sampled_from("aé日🎈 .,%'|~#[]{}$-"), min_size=1, max_size=12).filter(str.strip)
SPACES = st.sampled_from(["", " ", "  ", "\t"])
NEWLINES = st.sampled_from(["\n", "\r\n"])
MARKS = st.sampled_from(
    [
        ("utf-8", b""),
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
    ]
)


@st.composite
def po_strings(draw):
    """Return a string of a PO file in one or more lines, with escapes."""
    pieces = draw(
        st.lists(
            st.one_of(WORDS, st.sampled_from(["\\n", "\\t", '\\"', "\\\\", "\\x41", "\\101"])),
            min_size=1,
            max_size=4,
        )
    )
    if draw(st.booleans()):
        return f'"{"".join(pieces)}"'
    return '""\n' + "\n".join(draw(SPACES) + f'"{one}"' + draw(SPACES) for one in pieces)


@st.composite
def po_files(draw):
    parts = ['msgid ""\nmsgstr ""\n"Language: de\\n"\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n']
    for number in range(draw(st.integers(1, 4))):
        lines = draw(
            st.lists(
                st.sampled_from(
                    [
                        "# a comment",
                        "#. extracted",
                        "#: a.py:1",
                        "#",
                        "#, fuzzy",
                        "#, c-format,  fuzzy",
                        '#~ msgid "old"',
                        "",
                        '#| msgid "før"',
                    ]
                ),
                max_size=4,
            )
        )
        lines = sorted(lines, key=lambda one: "~" not in one)
        lines = [one for at, one in enumerate(lines) if one[:2] != "#|" or one not in lines[:at]]
        if draw(st.booleans()):
            lines.append(f"msgctxt{draw(SPACES)}{draw(po_strings())}")
        lines.append(f'msgid "{number}"\n{draw(po_strings())}')
        if draw(st.booleans()):
            lines += [
                f"msgid_plural {draw(po_strings())}",
                f"msgstr[0] {draw(po_strings())}",
                f"msgstr[1]  {draw(po_strings())}",
            ]
        else:
            lines.append(f"msgstr {draw(po_strings())}")
        parts.append("\n".join(lines) + "\n" * draw(st.integers(1, 3)))
    return "\n".join(parts), "de", ".po"


@st.composite
def xliff_files(draw):
    units = []
    texts = st.one_of(
        WORDS.map(lambda one: one.replace("]", "")),
        st.sampled_from(
            [
                "&amp;",
                "&lt;b&gt;",
                "&#233;",
                "<![CDATA[<b>&]]>",
                "<g id='1>'>in</g>",
                '<x id="2"/>',
                "<!-- note -->",
                "\n   ",
            ]
        ),
    )
    for number in range(draw(st.integers(1, 4))):
        source, target = ("".join(draw(st.lists(texts, min_size=1, max_size=3))) for _ in range(2))
        state = draw(
            st.sampled_from(["", " state='new'", ' state = "needs-translation"', "\n state-qualifier='x>y'"])
        )
        target = draw(
            st.sampled_from(
                [
                    f"<target{state}>{target}</target>",
                    f"<target{state}/>",
                    f"<target{state}></target >",
                    "",
                    f"<note>n</note><target>{target}</target>",
                ]
            )
        )
        others = draw(
            st.sampled_from(["", "<!-- c -->", "<alt-trans><source>a</source><target>b</target></alt-trans>"])
        )
        units.append(
            f"<trans-unit id='{number}'>{draw(SPACES)}\n  <source>{source}</source>{draw(SPACES)}{target}{others}\n</trans-unit>"
        )
    head = draw(st.sampled_from(["", "<?xml version='1.0'?>\n", "\n<!-- head -->"]))
    return (
        head
        + "<xliff version='1.2'><file original='a' source-language='en' target-language='de'><body>"
        + "\n".join(units)
        + "</body></file></xliff>",
        "de",
        ".xlf",
    )


@st.composite
def cue_files(draw):
    is_vtt = draw(st.booleans())
    parts, start = (["WEBVTT - odd", "NOTE\nnot a cue"] if is_vtt else []), 0
    lines = st.one_of(
        WORDS.filter(lambda one: any(sign.isalpha() for sign in one)),
        st.sampled_from(["<i>a b</i>", "{\\an8}up", "a &amp; b", "7 up", "<v Anna>Hi!</v>", "<c.red>x</c>"]),
    )
    for number in range(draw(st.integers(1, 5))):
        start += draw(st.integers(0, 3))
        times = f"{draw(SPACES)}00:00:{start:02}.000 -->  00:00:{start + draw(st.integers(1, 9)):02},500"
        text = [draw(SPACES) + one + draw(SPACES) for one in draw(st.lists(lines, min_size=1, max_size=3))]
        name = draw(st.sampled_from([[], [str(number)]]))
        parts.append("\n".join([*name, times, *text]) + "\n" * draw(st.integers(0, 2)))
    return "\n\n".join(parts) + draw(st.sampled_from(["", "\n"])), "de", ".vtt" if is_vtt else ".srt"


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.one_of(po_files(), xliff_files(), cue_files()), MARKS, NEWLINES)
def test_any_file_is_written_back_to_the_same_bytes(tmp_path, made, mark, newline):
    text, locale, suffix = made
    path, out = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
    path.write_bytes(mark[1] + text.replace("\n", newline).encode(mark[0]))
    try:
        frame = read(path, locale)
    except spf.InvalidRows as error:
        assert "same id" in str(error)  # noqa: PT017 - two random texts may be equal
        return
    out.unlink(missing_ok=True)
    report = write(frame, path, out, locale)
    assert report.written == 0
    assert out.read_bytes() == path.read_bytes()
    # A new text for each string can be read again, and the file is as before after the old texts are back.
    new = frame.copy()
    new[locale] = [f"Neu {number} für {suffix}" for number in range(len(frame))]
    report = write(new, path, out, locale)
    if suffix in {".po", ".xlf"}:
        assert report.written == len(new)
        assert read(out, locale)[locale].tolist() == new[locale].tolist()


@pytest.mark.parametrize(("name", "kept"), [("django/de.po", "Settings"), ("validators.xlf", "1")])
def test_a_file_in_another_locale_keeps_no_text_of_its_template(tmp_path, name, kept):
    template, out = FILES / name, tmp_path / Path(name).name
    old = spf.read_strings(template, progress=False)
    new = old.assign(**{"pt-BR": [kept if unit == kept else None for unit in old["unit"]]})
    report = write(new, template, out, "pt-BR")
    found = spf.read_strings(out, progress=False)
    is_ours = found["state"] != "no"
    assert list(found[is_ours & (found["pt-BR"] != "")]["unit"]) == [kept]
    assert (found.loc[is_ours & (found["pt-BR"] == ""), "state"].isin(["untranslated", "new"])).all()
    assert "in de removed" in str(report)


def test_sheets_keep_their_other_cells(tmp_path):
    import openpyxl

    (tmp_path / "a.csv").write_bytes(b'id;text;"de";note\r\n1;"a;b";"x";=1\r\n2;c;;"q ""r"""\r\n')
    strings = spf.read_strings(tmp_path / "a.csv", progress=False)
    assert strings[["id", "text", "state", "note"]].to_numpy().tolist() == [
        ["1", "a;b", "translated", "=1"],
        ["2", "c", "untranslated", 'q "r"'],
    ]
    strings.loc[strings.index[1], "de"] = "neu"
    write(strings, tmp_path / "a.csv", tmp_path / "b.csv", "de")
    assert (
        tmp_path / "b.csv"
    ).read_bytes() == b'id;text;"de";note\r\n1;"a;b";"x";=1\r\n2;c;neu;"q ""r"""\r\n'
    book = openpyxl.Workbook()
    for row in (["key", "source", "fr_FR", "count"], ["a", "One", "Un", 3], ["b", "Two", None, "=D2*2"]):
        book.active.append(row)
    book.create_sheet("notes").append(["kept"])
    book.save(tmp_path / "a.xlsx")
    strings = spf.read_strings(tmp_path / "a.xlsx", progress=False)
    assert strings["fr-FR"].tolist() == ["Un", ""]
    strings["fr-FR"], strings["pt-BR"] = ["Un", "=Deux"], ["Um", "Dois"]
    write(strings, tmp_path / "a.xlsx", tmp_path / "b.xlsx", "fr-FR")
    write(strings, tmp_path / "b.xlsx", tmp_path / "b.xlsx", "pt-BR")
    book = openpyxl.load_workbook(tmp_path / "b.xlsx")
    assert [[cell.value for cell in row] for row in book.worksheets[0]] == [
        ["key", "source", "fr_FR", "count", "pt-BR"], ["a", "One", "Un", 3, "Um"], ["b", "Two", "=Deux", "=D2*2", "Dois"],
    ]  # fmt: skip
    assert book["notes"]["A1"].value == "kept"


def test_a_failed_write_leaves_the_file(tmp_path):
    path = tmp_path / "film.srt"
    shutil.copy(FILES / "film/film.es-ES.srt", path)
    before = path.read_bytes()
    for text, words in (
        ("日本", "lacks '日'"),
        ("1\n00:00:01,000 --> 00:00:02,000", "would have other texts"),
    ):
        frame = spf.read_strings(path, progress=False).rename(columns={"text": "es-ES"})
        frame.loc[frame.index[3], "es-ES"] = text
        with pytest.raises(spf.InvalidRows, match=words):
            write(frame, path, path, "es-ES")
        assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["film.srt"]
