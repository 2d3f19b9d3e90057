"""Placeholders are kept out of a translator's reach and put back; what is lost or left behind is told."""

import itertools
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.backends.placeholders import find_placeholders, replace_spans

ICU = "{count, plural, =0 {no files} one {# file of {owner}} other {# files of {owner}}}"
NO_WORDS = "{count, plural, one {#} other {{count} %d}}"


def found(text):
    return [span.replacement for span in find_placeholders(text)]


def restored(source, translated):
    return replace_spans(source, find_placeholders(source)).restore(translated)


WITHOUT_SPACES = r"""
    {name} {0} {} {user.name} {price:.2f} {x!r:>10} {:?} {0:N2} {0,-10:C} {{name}} {{{raw}}} {{x|date:'short'}} {at,date,short}
    ${name} ${X:-1} %{name} #{name} {$name} {'@'} @:{'x'} {n,plural,one{#}other{#}}
    %s %1$s %5.2f %(count)d %(n)03d %@ %1$@ %ld %lu %1$lld %% %,d %+v %-10s %zu %I64d %*d %.*f %1$'.10d %1$tY %b %n %1 %L1
    %<name>s %<n>.2f %#@files@ %1!s! %Y-%m-%d %H:%M %user% %PATH% %variable %dMB
    $name $NAME$ $1 $t(key) $t(key,{"count":1}) $(date) :name :Name :NAME :smile: @count !count @user @:a.hello @:(a.hello)
    @.lower:key @string/app_name [.uuuuuu] [_1] [quant,_1,file] [1,19] [20,*] [user_name] [b] [/b] [$1] [[name]] ((name))
    YYYY-MM-DD HH:MM[:ss[.uuuuuu]][TZ] dd/MM/yyyy HH:mm:ss h:mm __count__ #name# [pause] snake_case MAX_SIZE call() key=value
    --flag=x `code` /usr/bin/env ./x ../a/b C:\Users\x \n \t \u00e9 \" \\n \N[1] <b> </b> <br/> <0> </0> <1/> </> <color=#fff>
    &nbsp; &#39; &#xA0; https://example.org/path?q=1&r=2#top www.example.org jane.doe+news@example.co.uk <%=x%>
    """
FORMS = [
    *WITHOUT_SPACES.split(),
    ICU, "{gender, select, male {he} female {she} other {they}}", "{ $name }", "{ NUMBER($x, minimumFractionDigits: 2) }",
    "{ -brand-name }", "{ user.name }", "{value, number, #.##}", "{0:dd MMM yyyy}", "{% if user.is_admin %}", "{# a remark #}",
    '{{ x | date: "short" }}', "{ $n ->\n [one] one file\n*[other] files\n}", "% d", '$t(key, {"count": 1})', "[pause 1.5s]",
    '[gallery id="1"]', '<a href="https://example.org/a?b=c">', '<a title="a > b">', "<a href='x' title=\"it's > b\">", "<!-- no > -->",
    "<?php echo 1 > 2; ?>", "<%= x > 1 %>", "<![CDATA[x]]>",
]  # fmt: skip

PROSE = [
    "100% of it, 5% discount and 20 % dare", "at 7:45, 50 % of", "and/or, he/she, km/h, 24/7", "e.g. this, i.e. that, p. ex., z.B.",
    "C: is a drive", "Bonjour\u202f: la suite !", "« Oui » : non", "10 %ige Lösung, 30 % d'achats, %50 indirim, 20 %-kal, 50%-os",
    "Tom & Jerry; R&D, AT&T", "1,234.50 € and 3:45", "$5.50, $500, US$ 20, 5 $US", "Note: this. Score 3:2", "rock'n'roll, #1, C#",
    "2 * 3 = 6, 5 @ $30", "~10 km, snake - case", "Kund:innen, EU:n", "Hi :) ok ;-)", '"Well": he said', "file(s), x2, m/s",
    "He left--no -- really.", "¡Hola! ¿Qué?", "the % of users", "a dash - here, A.M. or p.m.",
]  # fmt: skip


def test_what_is_a_placeholder_is_kept_whole():
    # A letter may follow a form that is a word in German or Hungarian, so a space stands on both sides.
    assert [
        (form, found(f"Look at {form} now.")) for form in FORMS if found(f"Look at {form} now.") != [form]
    ] == []
    protected = replace_spans("Look at {name} now.", find_placeholders("Look at {name} now."))
    assert protected.sent == "Look at PZ0 now."
    assert protected.restore("Voici PZ0.").text == "Voici {name}."


def test_prose_is_neither_kept_nor_compared():
    # Any other translation of the same numbers is right.
    numbers = [(text, " ".join(re.findall(r"\d[\d,.:]*", text))) for text in PROSE]
    assert [
        (text, found(text))
        for text, kept in numbers
        if found(text) or not restored(text, kept).placeholders_ok
    ] == []
    for text in ("a < b and b > c", "[optional]", "{ this is a note }"):
        assert found(text) == []


def test_a_form_that_is_not_known_is_never_right_once_it_changed():
    changed = [
        ("Dear {first name of user},", "Caro {primeiro nome do usuário},"),
        ("It is { open", "Está aberto"),
        ("[[user name]] is here", "[[nome]] está aqui"),
        ("((user name)) is here", "((nome)) está aqui"),
        ("one file | many files", "um arquivo muitos arquivos"),
        ("Open &File", "Abrir arquivo"),
        ("Run with --verbose", "Executar com -verbose"),
        ("Save _As", "Salvar como"),
        ("See settings.yaml", "Veja configurações.yaml"),
        ("std::cout is full", "std: cout está cheio"),
        ("is [on", "está"),
        ("ends in \\", "termina"),
        ("see <<x y", "veja «x y"),
        ("Hello", "Olá %s"),
        ("Hello", "Olá :nome"),
        ("Hello", "Olá {x}"),
    ]
    assert [pair for pair in changed if restored(*pair).placeholders_ok] == []
    assert [
        text
        for text, _ in changed
        if not restored(text, replace_spans(text, find_placeholders(text)).sent).placeholders_ok
    ] == []


def test_tokens_do_not_touch_letters():
    for text, sent in {
        "This deletes <b>all recordings</b>.": "This deletes PZ0 all recordings PZ1.",
        r"One\nTwo": "One PZ0 Two",
        "{a}{b}x 5{c} ({d})": "PZ0PZ1 x 5 PZ2 (PZ3)",
    }.items():
        protected = replace_spans(text, find_placeholders(text))
        assert (protected.sent, protected.restore(sent).text) == (sent, text)
    assert restored("a <b>big</b> house", "uma casa PZ0 grande PZ1").text == "uma casa <b>grande</b>"
    assert not restored("a <b>big</b> house", "uma casa grande PZ0 PZ1").placeholders_ok


def test_a_text_without_words_may_stay_the_same():
    same = [
        "OK",
        "PDF, 12 km",
        "{name}: %d",
        "https://a.bc/d",
        "MP3",
        "GitHub",
        "12:30",
        "x",
        "<b></b>",
        NO_WORDS,
        "用户A1",
    ]
    words = ["Integer", "Mon", "jan", "CANCEL", "MON", "{name} is here", ICU, "Да", "保存"]
    assert [text for text in same[:-1] if replace_spans(text, find_placeholders(text)).has_words()] == []
    assert [
        text for text in [*words, same[-1]] if not replace_spans(text, find_placeholders(text)).has_words()
    ] == []


def test_a_url_ends_before_the_sentence_does():
    assert found("See https://example.org/a. Or (http://b.org), or <i>ftp://c.org</i>!") == [
        "https://example.org/a", "http://b.org", "<i>", "ftp://c.org", "</i>",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("translated", "text", "is_ok"),
    [
        ("pz1 et PZ 0", "%d et {a}", True),
        ("PZ0", "{a}", False),
        ("PZ0 PZ1 PZ1", "{a} %d %d", False),
        ("PZ0 PZ1 PZ2", "{a} %d PZ2", True),
        ("PZ01 PZ1", "%d %d", False),
        ("PZ0PZ1", "{a}%d", True),
    ],
)
def test_each_must_come_back_once_wherever_it_stands(translated, text, is_ok):
    back = restored("{a} and %d", translated)
    assert (back.text, back.placeholders_ok, back.terms_ok, back.warnings) == (text, is_ok, None, ())


@pytest.mark.parametrize(
    ("source", "translated", "is_ok"),
    [
        ("1,234.5 and 7", "7 et 1.234,5", True),
        ("1,234 km", "1\u202f234 km", True),
        ("1,234 km", "1234 km", True),
        ("room 12", "غرفة ١٢", True),
        ("room 12", "٢١ غرفة", False),
        ("12 and 12", "12", False),
        ("12 files", "douze fichiers", False),
        ("no number", "2 numéros", True),
        ("at 10:30 on 3/4", "le 3/4 à 10h30", True),
        ("A reunião começa às 18h.", "The meeting starts at 6 p.m.", True),
        ("open until 6:30 p.m.", "geöffnet bis 18.30 Uhr", True),
        ("at 18:00", "at 6pm", True),
        ("at 09:05", "um 9.05 Uhr", True),
        ("18h, 18 files", "6 p.m., no file", False),
        ("at 18:30", "at 6 p.m.", False),
        ("13 files", "1 fichier", False),
        ("9" * 5000, "9" * 5000, True),
    ],
)
def test_numbers_are_counted_by_value(source, translated, is_ok):
    assert restored(source, translated).placeholders_ok is is_ok


@pytest.mark.parametrize(
    ("message", "branches"),
    [
        (ICU, "=0 {no files}, one {# file of {owner}}, other {# files of {owner}}"),
        (
            "{g, select, a {{n, plural, one {his} other {#}}} other {#}}",
            "a {{n, plural, one {his} other {#}}}",
        ),
        ("{n, selectordinal, one {#st} other {#}}", "one {#st}"),
        (NO_WORDS, None),
        ("{at, date, long}", None),
        ("{ $n ->\n [one] {$n} file\n*[other] {$n}\n}", "one {{$n} file}"),
    ],
)
def test_branches_that_stay_in_the_source_language_are_told(message, branches):
    back = restored(f"You have {message}", "Vous avez PZ0")
    assert back.text == f"Vous avez {message}"
    assert back.placeholders_ok is (branches is None)
    assert back.warnings == (() if branches is None else (f"branches were not translated: {branches}",))


PIECES = st.sampled_from(
    [*"aé漢 \n.,{}%<>&0123$#@", "PZ", "PZX", "PZ0", "{name}", "%s", "%1$d", NO_WORDS, "<b>", "</b>", "https://a.bc/d", "x@y.zz"]
)  # fmt: skip


@settings(max_examples=50)
@given(st.lists(PIECES, max_size=40).map("".join), st.data())
def test_a_faithful_translator_loses_nothing_and_a_lost_token_is_seen(text, data):
    spans = find_placeholders(text)
    assert all(a.end <= b.start for a, b in itertools.pairwise(spans))
    assert all(text[span.start : span.end] == span.replacement for span in spans)
    protected = replace_spans(text, spans)
    back = protected.restore(protected.sent)
    assert (back.text, back.placeholders_ok) == (text, True)
    if spans:
        lost = data.draw(st.integers(0, len(spans) - 1))
        cut = re.sub(rf"{protected.form}{lost}(?!\d)", " ", protected.sent)
        assert not protected.restore(cut).placeholders_ok


HALVES = [
    "{" + " " * 99_000, "a" * 99_000, "<!--" * 25_000, "{n, plural, " * 8_000, "a." * 50_000, "%0" * 50_000,
    "%" + "0" * 99_000, "%(n)" + "0" * 99_000, "${a}" * 25_000, "{n,plural,a{" * 4_000 + "x" + "}}" * 4_000, "1:" * 50_000,
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", HALVES, ids=[text[:8] for text in HALVES])
def test_a_hostile_text_takes_no_longer_than_its_length(text):
    def seconds(part):
        began = time.process_time()
        protected = replace_spans(part, find_placeholders(part))
        protected.restore(protected.sent)
        return time.process_time() - began

    # Ten times the text may take some tens of times as long, never a hundred and more.
    whole, tenth = (min(seconds(part) for _ in range(3)) for part in (text, text[: len(text) // 10]))
    assert whole < 40 * max(tenth, 0.01)
