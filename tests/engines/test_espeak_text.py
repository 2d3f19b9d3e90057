"""Text is spoken as text: nothing in it is obeyed, nothing crashes, nothing is lost."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speechframe.audio import measure
from speechframe.backends.pronunciations import PronunciationSheet
from speechframe.engines.base import Utterance
from speechframe.errors import EngineError
from speechframe.local.engines.espeak.phonemes import convert_ipa
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.local.engines.reading.text import find_unused_words, prepare_text
from speechframe.spec.pronunciations import fold_word
from speechframe.spec.speech import Pronunciation
from speechframe.spec.texts import split_pauses

RATE_HZ = 22050


def words(speech):
    return [word.word for word in speech.words]


def given_to_the_engine(text, locale="en-US", pronunciations=None):
    return prepare_text(
        text, LOCALES[locale], pronunciations or {}, lambda ipa: convert_ipa(ipa, "gmw/en-US")
    )


# The traps of the engine


def test_merged_function_words_have_an_entry_each(say):
    text = "So that a row of the table is spoken at the end of the day"
    speech = say(text)
    assert words(speech) == text.split()
    assert all(word.end_ms - word.start_ms >= 30 for word in speech.words)


def test_numbers_and_abbreviations_are_one_word_each(say):
    speech = say("Dr. Smith paid $20 for 3.5 kg at 10:30 in the U.S., e.g. 1,234 of 42.")
    assert " ".join(words(speech)) == "Dr Smith paid $20 for 3.5 kg at 10:30 in the U.S e.g 1,234 of 42"
    length_ms = {word.word: word.end_ms - word.start_ms for word in speech.words}
    assert length_ms["1,234"] > 1000 > length_ms["of"]


def test_signs_have_an_entry_when_they_are_heard(say):
    heard = ["Salt", "&", "pepper", "50%", "off", "\U0001f600", "now"]
    assert words(say("Salt & pepper, 50% off \U0001f600 now")) == heard
    assert words(say("see \u00a7 5, \u00a8")) == ["see", "\u00a7", "5", "\u00a8"]
    assert words(say("Salt - pepper -- now \u2026 ok !")) == ["Salt", "pepper", "now", "ok"]


def test_original_text_has_one_entry_per_token_as_written(say):
    text = 'Dr. Smith -- paid $3.50, "ok"? \U0001f600 (e.g. 10:30) !'
    speech = say(text, words_as_original_text=True)
    assert words(speech) == text.split()
    at_ms = 0
    for word in speech.words:
        assert at_ms <= word.start_ms <= word.end_ms
        at_ms = word.end_ms
    silent = {word.word for word in speech.words if word.start_ms == word.end_ms}
    assert silent == {"--", "!"}


def test_original_text_keeps_a_place_for_what_is_left_out(say):
    speech = say("Hello 世界 now", words_as_original_text=True)
    assert words(speech) == ["Hello", "世界", "now"]
    assert speech.words[1].start_ms == speech.words[1].end_ms
    assert words(say("Hello 世界 now")) == ["Hello", "now"]


def test_original_text_is_for_english_only(say):
    speech = say("Hola, \u00bfqu\u00e9 tal?", "lucia", words_as_original_text=True)
    assert words(speech) == ["Hola", "qu\u00e9", "tal"]
    assert "English only" in speech.warnings[0]
    assert not say("Well, ok.", "edith", words_as_original_text=True).warnings


# Nothing is obeyed


@pytest.mark.parametrize(
    "text",
    [
        "Say [[h@loU]] now",
        "Say <break time='3s'/> now",
        "Say \x0150P\x01200S now",
        "Say [[[ ]] ]] now",
        "Say \\x01 [pause] now",
    ],
)
def test_markup_is_text(say, text):
    speech = say(text)
    assert words(speech)[0] == "Say"
    assert words(speech)[-1] == "now"
    # Neither speed nor pitch of what follows has changed.
    plain = say("Say now").words[-1]
    assert speech.words[-1].end_ms - speech.words[-1].start_ms == pytest.approx(
        plain.end_ms - plain.start_ms, abs=60
    )


def test_control_characters_are_blanks_and_invisible_ones_nothing():
    handed = given_to_the_engine("a\x00b\x01c\x7fd\u200be\u00adf\ufeffg\u202eh")
    assert handed.text == "a b c defgh"
    assert [("a\x00b\x01c\x7fd\u200be\u00adf\ufeffg\u202eh")[origin] for origin in handed.origins] == [
        *"a\x00b\x01c\x7f",
        *"defgh",
    ]


def test_ornamental_letters_and_digits_are_plain_ones(say):
    assert (
        given_to_the_engine(
            "\uff28\uff49 \U0001d4d7\U0001d4ee \u2460 \ufb01 \u0967\u0968 caf\u0065\u0301"
        ).text
        == "Hi He 1 fi 12 caf\u00e9"
    )
    assert say("\uff28\uff45\uff4c\uff4c\uff4f").samples.tobytes() == say("Hello").samples.tobytes()


def test_lone_punctuation_is_not_read_aloud(say):
    plain = say("Hello you").audio_seconds
    assert say("Hello . you").samples.tobytes() == say("Hello. you").samples.tobytes()
    assert say("Hello . you").audio_seconds < plain + 0.3
    assert say("! Hello you").audio_seconds < plain + 0.1
    assert say("\U0001f600!!!").audio_seconds == pytest.approx(say("\U0001f600").audio_seconds, abs=0.15)


# Nothing is lost


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "unit", "count"),
    [
        ("nora", "b", 300),
        ("nora", "7", 90),
        ("mei", "我", 450),
        ("sakura", "き", 200),
        ("minji", "가나다라마바사 ", 60),
    ],
)
def test_long_words_and_long_clauses_are_spoken_to_their_end(say, name, unit, count):
    short = say(unit * (count // 10), name).audio_seconds
    assert say(unit * count, name).audio_seconds == pytest.approx(10 * short, rel=0.15)


def test_five_thousand_characters(say):
    chosen = random.Random(1)
    text = " ".join(chosen.choice(["table", "green", "over", "and", "seven", "house."]) for _ in range(900))[
        :5000
    ]
    speech = say(text)
    assert len(speech.words) == len(text.split())
    assert speech.audio_seconds > 200
    level_db = measure.measure_frame_levels_db(speech.samples, RATE_HZ, 1000)
    assert (level_db[:-1] > -45).all()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(
        st.one_of(
            st.characters(codec=None),
            st.sampled_from("[]<>&|{}\\\x00\x01\n\r\t.,!?'\"-\u2014\u200d\ufe0f\U0001f600aeiou 0123456789"),
        ),
        max_size=40,
    ),
    st.sampled_from(["en-US-nora", "zh-CN-mei", "ar-SA-layla", "hi-IN-asha", "ja-JP-sakura", "ko-KR-minji"]),
    st.booleans(),
)
def test_any_text_is_spoken_or_refused_in_words(text, voice_id, as_original):
    utterance = Utterance(text, voice_id, voice_id[:5], words_as_original_text=as_original)
    try:
        speech = EspeakSpeaker().speak(utterance)
    except EngineError as error:
        assert "no character that a voice can speak" in str(error)  # noqa: PT017  (most texts are fine)
        return
    at_ms = 0
    for word in speech.words:
        assert at_ms <= word.start_ms <= word.end_ms <= round(1000 * speech.audio_seconds)
        at_ms = word.end_ms
    assert measure.measure_peak(speech.samples) <= 0.9


@pytest.mark.parametrize("text", ["...", " ", "\u2014 \u2014", "\u200b", "[pause 1s]", "\x00", "^"])
def test_text_without_anything_to_speak_is_refused(say, text):
    with pytest.raises(EngineError, match="no character that a voice can speak in en-US"):
        say(text)


def test_text_in_another_script_only_is_refused_naming_it(say):
    with pytest.raises(EngineError, match="世 界"):
        say("世界")


def test_letters_of_another_script_are_left_out_and_named(say):
    speech = say("Hello 世界, this is \u043c\u0438\u0440.")
    assert words(speech) == ["Hello", "this", "is"]
    assert speech.warnings == (
        "left out, because they cannot be spoken in English (United States): 世 界 \u043c \u0438 \u0440",
    )


def test_kanji_are_spoken_by_their_readings(say):
    kanji, kana = (say(text, "sakura") for text in ("今日は いい 天気", "キョーワ いい テンキ"))
    assert words(kanji) == ["今日は", "いい", "天気"]
    assert kanji.warnings == ()
    assert kanji.audio_seconds == pytest.approx(kana.audio_seconds, rel=0.15)
    (warning,) = say("龘の いい 天気", "sakura").warnings
    assert "龘" in warning
    assert "install" not in warning


def test_without_a_reader_of_kanji_japanese_says_that_it_reads_kana(monkeypatch):
    monkeypatch.setattr(japanese, "find_spec", lambda _: None)
    (warning,) = EspeakSpeaker().speak(Utterance("今日は いい てんき", "ja-JP-sakura", "ja-JP")).warnings
    assert "speechframe[japanese]" in warning
    with pytest.raises(
        EngineError, match=r"no character that a voice can speak in ja-JP.*speechframe\[japanese\]"
    ):
        EspeakSpeaker().speak(Utterance("東京", "ja-JP-sakura", "ja-JP"))


def test_latin_letters_in_japanese_are_read(say):
    table = {
        "5 GB": "ゴギガバイト",
        "5GB": "ゴギガバイト",
        "Wi-Fi": "ワイファイ",
        "OK": "オーケイ",
        "AT&T": "エイティーアンドティー",
        "café": "カフェ",
        "3\u202f000円": "サンゼンエン",
    }
    assert {text: given_to_the_engine(text, "ja-JP").text for text in table} == table
    assert say("USB-C と Wi-Fi", "sakura").warnings == ()


def test_the_engine_has_a_sound_for_all_kana(say):
    texts = ["スウェーデン", "オオー", "ルヴァン", "うーん、んー", "スィー", "コーヒー", "トーキョー"]
    # "Japanese letter" takes more than a second.
    assert [text for text in texts if say(text, "sakura").audio_seconds > 1] == []


# Numbers


NUMBERS = {
    "fr-FR": {
        "3\u00a0000 €": "3000 €",
        "3\u202f000,50": "3000,50",
        "3 000": "3000",
        "1,234.5": "1234,5",
        "3,5": "3,5",
        "06 12 34 56 78": "06 12 34 56 78",
        "+33 612 345 678": "+33 612 345 678",
        "12.05.2024": "12.05.2024",
    },
    "en-US": {
        "3\u2009000": "3000",
        "1,234,567.5": "1234567.5",
        "12,34,567": "1234567",
        "1.234.567,8": "1234567.8",
        "3.141": "3.141",
        "3 000": "3 000",
        "10,20,30": "10,20,30",
        "5'10": "5'10",
    },
    "de-DE": {"3'000.50": "3000,50", "10\u2019000": "10000", "3.500": "3500", "3.5": "3.5"},
    "hi-IN": {"१२,३४,५६७": "1234567"},
    "ar-SA": {"٣٬٠٠٠٫٥": "3000.5"},
    "es-MX": {"3,000": "3000", "3.500": "3 punto 5 0 0"},
    "uk-UA": {"3,5": "3 кома 5", "3\u00a0000": "3000"},
    "kk-KZ": {"3,5": "3.5"},
    "ko-KR": {"3.5": "3 점 5"},
    "hr-HR": {"1.234.567": "1234567"},
}


def test_numbers_are_written_as_every_engine_reads_them():
    found = {
        locale: {text: given_to_the_engine(text, locale).text for text in table}
        for locale, table in NUMBERS.items()
    }
    assert found == NUMBERS


def test_a_number_with_blanks_is_one_word_as_written(say):
    speech = say("It costs 3\u202f000 dollars.")
    assert words(speech) == ["It", "costs", "3\u202f000", "dollars"]
    plain = say("It costs 3000 dollars.")
    assert [word.start_ms for word in speech.words] == [word.start_ms for word in plain.words]
    assert speech.warnings == ()


ROMAN_NUMERALS = {
    "en-US": {
        "World War II": "World War 2",
        "World War I was": "World War 1 was",
        "Henry VIII\u2019s wives": "Henry the eighth\u2019s wives",
        "LOUIS XIV": "LOUIS the fourteenth",
        "Vol. II, Rocky IV, Type-V": "Vol. 2, Rocky 4, Type-5",
        "Elizabeth I, James I of Scotland": "Elizabeth the first, James the first of Scotland",
        "the part I like, as I told Henry I was": "the part I like, as I told Henry I was",
        "after the War. I went": "after the War. I went",
        "I MIX vitamin C, DC, a CV, MD, CD, Part C": "I MIX vitamin C, DC, a CV, MD, CD, Part C",
        "IV fluids, Malcolm X": "IV fluids, Malcolm X",
    },
    "de-DE": {
        "Kapitel IV": "Kapitel 4",
        "Ludwig XIV. war": "Ludwig der Vierzehnte war",
        "unter Karl V. Danach": "unter Karl der Fünfte. Danach",
        "im XX. Jahrhundert": "im zwanzigsten Jahrhundert",
        "Größe XL, DC": "Größe X L, DC",
    },
    "fr-FR": {
        "Louis XIV, chapitre V": "Louis 14, chapitre 5",
        "François Ier au XVIe siècle": "François premier au seizième siècle",
        "Ve République": "cinquième République",
        "C'est un CV, Xe": "C'est un CV, Xe",
    },
    "es-ES": {
        "siglo XXI": "siglo 21",
        "Felipe II, Isabel II": "Felipe 2º, Isabel 2ª",
        "II Guerra": "2ª Guerra",
    },
    "pt-BR": {"século XX": "século 20", "João VI": "João 6º", "MIX, CV, DC": "mix, cv, dc"},
    "it-IT": {"capitolo III": "capitolo 3º", "Rocky II": "Rocky 2", "XX secolo": "20º secolo"},
    "nl-NL": {"Willem II": "Willem II"},
}


def test_roman_numerals_are_read_as_numbers_and_words_that_look_so_are_not():
    found = {
        locale: {text: given_to_the_engine(text, locale).text for text in table}
        for locale, table in ROMAN_NUMERALS.items()
    }
    assert found == ROMAN_NUMERALS


def test_a_roman_numeral_keeps_its_word_and_is_told(say):
    speech = say("World War II ended.")
    assert words(speech) == ["World", "War", "II", "ended"]
    times = [(word.start_ms, word.end_ms) for word in speech.words]
    assert times == [(word.start_ms, word.end_ms) for word in say("World War 2 ended.").words]
    assert speech.warnings[0].startswith("Roman numerals are read as numbers: II as '2';")
    known = {"World War II": said("SAY_AS", "that war")}
    assert given_to_the_engine("World War II", pronunciations=known).text == "that war"


# Pronunciations


def said(kind, pronunciation):
    return Pronunciation(type=kind, pronunciation=pronunciation)


def test_ipa_changes_what_is_heard_and_keeps_the_word(say):
    british = {"tomato": said("IPA", "t\u0259\u02c8m\u0251\u02d0t\u0259\u028a")}
    speech = say("I say tomato, Tomato and tomatoes.", pronunciations=british)
    assert words(speech) == ["I", "say", "tomato", "Tomato", "and", "tomatoes"]
    plain = say("I say tomato, Tomato and tomatoes.")
    assert speech.samples.tobytes() != plain.samples.tobytes()
    # The word without an entry of its own sounds as before.
    tail = speech.samples[-8000:], plain.samples[-8000:]
    assert measure.median_f0_hz(tail[0], RATE_HZ) == pytest.approx(
        measure.median_f0_hz(tail[1], RATE_HZ), rel=0.02
    )


@pytest.mark.parametrize(
    ("ipa", "language", "spelled"),
    [
        ("t\u0259\u02c8m\u0251\u02d0to\u028a", "gmw/en-US", "[[t|@|m|'A:|t|oU]]"),
        ("/\u02c8d\u0361\u0292i\u02d0.p\u025b\u0261/", "gmw/en-US", "[[dZ|'i:|p|E|g]]"),
        ("h\u0259\u02c8lo\u028a w\u025c\u02d0ld", "gmw/en-US", "[[h|@|l|'oU]] [[w|3:|l|d]]"),
        ("b\u0254\u0303\u0292u\u0281", "roa/fr", "[[b|O~|Z|u|r]]"),
        ("\u02c8\u03b8jen\u03b8ja", "roa/es", "[[T|j|'e|n|T|j|a]]"),
        # Spanish has no such vowel: its nearest is taken.
        ("w\u026an", "roa/es", "[[w|i|n]]"),
    ],
)
def test_ipa_becomes_the_engines_own_spelling(ipa, language, spelled):
    assert convert_ipa(ipa, language) == spelled


def test_languages_of_every_family_have_their_sounds():
    for locale in list(LOCALES.values())[::6]:
        assert convert_ipa("ma\u02c8na si tu", locale.language).startswith("[[m")


@pytest.mark.parametrize(
    ("ipa", "named"),
    [("t\u01c3\u0298", "LATIN LETTER RETROFLEX CLICK"), ("[[x]]|'_", "LOW LINE"), ("/./", "no sound")],
)
def test_what_is_no_sound_is_refused_by_name(say, ipa, named):
    with pytest.raises(EngineError, match=named):
        say("I say tomato.", pronunciations={"tomato": said("IPA", ipa)})


def test_say_as_replaces_what_is_said_but_not_the_word(say):
    speech = say("The SQL file and sql.", pronunciations={"SQL": said("SAY_AS", "sequel")})
    assert words(speech) == ["The", "SQL", "file", "and", "sql"]
    said_as = say("The sequel file and sql.")
    assert speech.samples.tobytes() == said_as.samples.tobytes()
    times = [(word.start_ms, word.end_ms) for word in speech.words]
    assert times == [(word.start_ms, word.end_ms) for word in said_as.words]


def test_say_as_of_several_words_and_for_several_words(say):
    who = say("The WHO said so.", pronunciations={"WHO": said("SAY_AS", "World Health Organization")})
    assert words(who) == ["The", "WHO", "said", "so"]
    assert who.words[1].end_ms - who.words[1].start_ms > 1000
    city = say("In New York now.", pronunciations={"New York": said("SAY_AS", "the big apple")})
    assert words(city) == ["In", "New", "York", "now"]


@pytest.mark.parametrize(
    ("key", "text", "found"),
    [
        ("live", "Live LIVE live alive liver", 3),
        ("US", "US us Us USA", 1),
        ("C++", "C++ and C++.", 2),
        ("东京", "我去东京塔", 1),
        ("SQL", "我用SQL写", 1),
        ("SQL", "MySQL, SQLite", 0),
        ("(x)", "a (x) b", 1),
    ],
)
def test_where_a_word_of_the_dictionary_is_found(key, text, found):
    locale = "zh-CN" if "我" in text else "en-US"
    handed = given_to_the_engine(text, locale, {key: said("SAY_AS", "qq")})
    assert handed.text.count("qq") == found


LETTERS = st.text("aAbßſ\u0130 .东京[", min_size=1, max_size=4).filter(str.strip)


@given(
    st.lists(LETTERS | st.just("pause"), max_size=8, unique_by=lambda word: fold_word(word.strip())),
    st.lists(LETTERS | st.just("[pause 1s]"), max_size=12).map("".join),
)
def test_a_request_with_only_the_words_of_its_text_is_spoken_like_one_with_all_words(known, text):
    lines = [[word.strip(), "", "", "SAY_AS", f"q{number}"] for number, word in enumerate(known)]
    chosen = PronunciationSheet(lines).choose(text, "en-US", "en-US-nora")
    sent = {word: Pronunciation(**entry) for word, entry in chosen.items()}
    everything = {line[0]: said(*line[3:]) for line in lines}
    assert find_unused_words(text, sent) == ()
    assert set(find_unused_words(text, everything)) == set(everything) - set(sent)
    handed = ""
    for part in filter(lambda part: isinstance(part, str), split_pauses(text)):
        assert given_to_the_engine(part, "zh-CN", sent) == given_to_the_engine(part, "zh-CN", everything)
        handed += given_to_the_engine(part, "zh-CN", sent).text
    assert all(entry.pronunciation in handed for entry in sent.values())


def test_the_longest_word_of_the_dictionary_wins():
    handed = given_to_the_engine(
        "New York", pronunciations={"New": said("SAY_AS", "old"), "New York": said("SAY_AS", "city")}
    )
    assert handed.text == "city"
