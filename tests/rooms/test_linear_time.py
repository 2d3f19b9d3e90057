"""Whoever sends four times the text costs about four times the work, whatever stands in it."""

import time
from contextlib import suppress

import pytest

from speechframe.backends.placeholders import find_placeholders, replace_spans
from speechframe.engines.words import spoken_tokens
from speechframe.local.dubbing.speech import find_speech
from speechframe.local.engines.kokoro.phonemes import KokoroPhonemiser
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.local.engines.reading.text import prepare_text
from speechframe.local.engines.translation.apertium import _decode_stream
from speechframe.local.engines.translation.text import split_portions, translate_protected
from speechframe.local.engines.translation.vocabulary import Alphabet
from speechframe.local.service.http.body import parse_object
from speechframe.local.service.http.forms import make_parser
from speechframe.spec.check import shorten_value
from speechframe.spec.locales import normalise
from speechframe.spec.texts import find_code_warnings, find_pause_warnings, find_text_fault
from speechframe.wire import cues, subtitles
from speechframe.wire.chunking import Chunker
from speechframe.wire.errors import decode_error
from speechframe.wire.frames import parse_client_frame, parse_server_frame

pytestmark = pytest.mark.quiet


def script(text):
    times(f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n")


def times(text):
    with suppress(ValueError):
        find_speech(subtitles.read_subtitles(text))


def cut(text):
    cues.make_cues([cues.Cue(0, 60_000, text)], 100_000)


def spoken(text):
    return prepare_text(text, LOCALES["en-US"], {}, str)


def kana(text):
    list(japanese.find_readings(text))


def breaks(text):
    japanese.insert_breaks(text, range(len(text)))


def portioned(text):
    for _ in range(20):  # a portion has 1000 characters
        split_portions(text)


def shield(text):
    for _ in range(20):
        translate_protected(text, Alphabet(frozenset("ab. \u200b")), str)


def locale(text):
    with suppress(ValueError):
        normalise(text)


def form(text):
    with suppress(Exception):
        list(make_parser("multipart/form-data; boundary=x").parse(text.encode()))


def chunked(text):
    Chunker(min_buffer_size=0).add(text)


def placeholders(text):
    protected = replace_spans(text, find_placeholders(text))
    protected.restore(protected.sent)


def phonemes(text, locale="ja-JP"):
    KokoroPhonemiser(locale).make_sentences(spoken(text), spoken_tokens(text))


# Function, what the text begins with, what it repeats, what it ends with, and how often at first.
WORST = {
    "a timestamp of dots in a script": (script, "<1", ".", "", 1000),
    "a voice without a name in a script": (script, "<v", " ", "", 20_000),
    "openings in a script": (script, "", "{\\<v <1.", "", 1000),
    "a name without an end in a script": (script, "A", " '", "", 10_000),
    "references in a script": (script, "", "&#1", "", 1000),
    "speakers in a script": (script, "", "A: x\n", "", 300),
    "brackets in a script": (script, "", "(", "", 5000),
    "brackets over lines in a script": (script, "", "[a\n", "", 1000),
    "sounds in a script": (script, "", "(a) ", "", 1000),
    "songs in a script": (script, "", "\u266a a\n", "", 500),
    "names in brackets in a script": (script, "", "[A b (c) ", "", 1000),
    "numbers in a script": (times, "", "1\n\n", "", 1000),
    "arrows in a script": (times, "", "1->", "", 5000),
    "captions that roll": (times, "", "0:1 --> 0:2\na\nb\n\n", "", 200),
    "empty lines around a script": (times, "", "\n", "", 20_000),
    "times of blanks": (times, "0:1.1 -->", " ", "0:2.1", 50_000),
    "words of a cue": (cut, "", "a ", "", 500),
    "a cue of one word": (cut, "", "a", "", 500),
    "scripts of an error page": (lambda text: decode_error(500, text.encode(), {}), "", "<script ", "", 250),
    "marks in a text to translate": (portioned, "", "!", "x" * 1000, 220),
    "blanks in a text to translate": (shield, "a", " ", "b", 220),
    "unseen characters in a text to translate": (shield, "a", "\u200b", "b", 220),
    "addresses in a text to translate": (shield, "", "a@", "", 60),
    "tags in a text to translate": (shield, "", "<a ", "", 40),
    "marks in a text to speak": (spoken, "", "?", "a", 1000),
    "blanks in a text to speak": (spoken, "a", " ", "b", 1000),
    "marks and blanks in a text to speak": (spoken, "", " ?", "", 1000),
    "numbers in groups": (spoken, "", "1\u00a0000", "", 1000),
    "digits of a number": (spoken, "", "1", "", 1000),
    "Roman numerals": (spoken, "", "War II ", "", 500),
    "a Roman numeral without an end": (spoken, "War ", "I", "", 1000),
    "blanks around a Roman numeral": (spoken, "War", " ", "II", 1000),
    "letters and hyphens in Japanese": (kana, "", "a-", "", 100),
    "long vowels in Japanese": (breaks, "", "ウー", "", 2000),
    "codes in a text to speak": (find_code_warnings, "", "<a {a, %( &# ", "", 1000),
    "braces in a text to speak": (find_code_warnings, "{", " ", "", 2000),
    "marks for a neural voice": (phonemes, "", "?", "a", 1000),
    "blanks for a neural voice": (phonemes, "a", " ", "b", 1000),
    "words for a neural voice": (phonemes, "", "a ", "", 500),
    "numbers for a neural voice": (lambda text: phonemes(text, "en-US"), "", "999999999999 ", "", 100),
    "words of blocks of rules": (_decode_stream, "", "[", "", 1000),
    "brackets of pauses": (find_pause_warnings, "", "[pause ", "", 500),
    "digits of pauses": (find_pause_warnings, "", "[pause 1", "", 500),
    "markup": (find_text_fault, "", "<p a", "", 1000),
    "unfinished markers of a stream": (chunked, "", "[pause ", "", 2000),
    "stops of a stream": (chunked, "", ".", "", 5000),
    "initials of a stream": (chunked, "", "a. ", "", 2000),
    "what looks like a token": (placeholders, "PZ", "X", "", 5000),
    "placeholders that are not closed": (placeholders, "", "{a, select, ", "", 500),
    "addresses that are none": (placeholders, "", "www.a@", "", 1000),
    "quotes of tags that are not closed": (placeholders, "", "<a \"'", "", 500),
    "words of braces that are not code": (placeholders, "", "{a b ", "", 500),
    "prose in braces": (placeholders, "{", "a b ", "}", 1000),
    "brackets that are not code": (placeholders, "", "[a b] [", "", 500),
    "marks of code": (placeholders, "", "` ** ~~ $t( @a- #a ", "", 200),
    "backslashes": (placeholders, "", "\\", "", 2000),
    "fields of a date": (placeholders, "", "m:", "", 1000),
    "parts of a name": (placeholders, "", "a.", "", 1000),
    "words of a name": (placeholders, "aa", "_a", "_ ", 1000),
    "a name of one word": (placeholders, "__a", "a", "_", 4000),
    "dates of percents": (placeholders, "", "%a-", "", 1000),
    "a long word": (placeholders, "", "aB", "", 4000),
    "a long locale": (locale, "en-x", "-a", "", 20_000),
    "numbers of a body": (lambda text: parse_object(text.encode()), '{"a":1.', "1", "}", 50_000),
    "quotes of a body": (lambda text: parse_object(text.encode()), '{"a":"', '\\"', '"}', 20_000),
    "a frame of quotes": (parse_client_frame, '{"text":"', '\\"', '"}', 4000),
    "an answer of brackets": (parse_server_frame, "", "[", "", 10_000),
    "an address that is shown": (shorten_value, "", "//a", "", 10_000),
    "a form of boundaries": (form, "", "\r\n--", "", 10_000),
    "a head of a form": (form, "--x\r\nContent-Disposition: form-data; a=", ' ;="', "", 500),
}


def seconds(work, text):
    """Return the time of this thread alone: whatever else the machine does, it is not counted."""
    best = float("inf")
    for _ in range(3):
        started = time.thread_time()
        work(text)
        best = min(best, time.thread_time() - started)
    return best


@pytest.mark.parametrize("case", WORST)
def test_four_times_the_text_is_not_ten_times_the_work(case):
    work, start, unit, end, count = WORST[case]
    with suppress(ValueError, Exception):
        work(start + unit + end)  # tables are read, patterns are made
    once, four_times = (seconds(work, start + unit * each + end) for each in (count, 4 * count))
    assert four_times < 10 * once + 0.002
