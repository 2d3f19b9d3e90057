"""The models behave as the transcribed tables say: ranges, choices, defaults, required fields, openness."""

import tomllib
import warnings
from pathlib import Path

import pytest
from pydantic import ValidationError

from speechframe.spec import dubbing, socket, speech
from speechframe.spec.changer import ConvertRequest, ConvertResponse
from speechframe.spec.check import check
from speechframe.spec.deprecation import make_deprecation_notice, warn_deprecated
from speechframe.spec.facts import iter_models, read_field_facts

MODELS = {model.__name__: model for model in iter_models()}
FACTS = tomllib.loads(Path(__file__).with_name("facts.toml").read_text(encoding="utf-8"))
SMALLEST = {
    "text": "Hello",
    "voiceId": "nora",
    "voice_id": "nora",
    "targetLanguage": "fr-FR",
    "texts": ["Hello"],
    "project_id": "p1",
    "name": "Demo",
    "dubbing_type": "QA",
    "target_locales": ["fr_FR"],
    "file_url": "https://example.org/clip.wav",
}
REQUESTS = [
    "GenerateRequest",
    "StreamRequest",
    "ConvertRequest",
    "TranslateRequest",
    "VoicesQuery",
    "JobCreateRequest",
    "ClientFrame",
    "JobCreateWithProjectRequest",
    "ProjectCreateRequest",
    "ProjectListQuery",
    "ProjectUpdateRequest",
]


def smallest(model: str) -> dict:
    facts = read_field_facts(MODELS[model])
    needed = {name: SMALLEST[name] for name, fact in facts.items() if fact.required}
    return needed | ({"file_url": SMALLEST["file_url"]} if "file_url" in facts else {})


def rows(*facets: str) -> list:
    return [
        (table["model"], field)
        for table in FACTS["table"]
        if table["model"] in REQUESTS
        for field in table["fields"]
        if any(facet in field for facet in facets)
    ]


def refused(model: str, /, **fields) -> bool:
    checked = check(MODELS[model], smallest(model) | fields)
    assert (checked.value is None) is bool(checked.problems)
    return checked.value is None


@pytest.mark.rule("limit.pitch-rate", "limit.variation", "limit.audio-duration", "limit.changer-ranges")
def test_ranges_hold_on_both_ends():
    for model, field in rows("minimum", "maximum"):
        name, step = field["name"], 0.5 if field["type"] == "double" else 1
        if "minimum" in field:
            assert not refused(model, **{name: field["minimum"]}), (model, name)
            assert refused(model, **{name: field["minimum"] - step}), (model, name)
        assert not refused(model, **{name: field.get("maximum", 1e9)}), (model, name)
        if "maximum" in field:
            assert refused(model, **{name: field["maximum"] + step}), (model, name)


def test_choices_are_exactly_the_documents():
    for model, field in rows("one_of"):
        name, is_number = field["name"], field["type"] == "double"
        for choice in field["one_of"]:
            assert not refused(model, **{name: choice}), (model, name, choice)
        assert refused(model, **{name: 12345 if is_number else "NOPE"}), (model, name)
        # FALCON and GEN2 are the two tolerated spellings, and GEN2 is gen2 with its case swapped.
        if not is_number and (model not in {"VoicesQuery", "StreamRequest"} or name != "model"):
            assert refused(model, **{name: str(field["one_of"][0]).swapcase()}), (model, name)


def test_required_fields_are_missed():
    for model, field in rows("required"):
        given = smallest(model)
        assert not check(MODELS[model], given).problems
        for wrong in (
            {name: value for name, value in given.items() if name != field["name"]},
            {**given, field["name"]: None},
        ):
            (problem,) = check(MODELS[model], wrong).problems
            assert (problem.field, "missing" in problem.problem) == (field["name"], True), (
                model,
                field["name"],
            )


def test_defaults_are_what_the_model_holds():
    for model, field in rows("default"):
        value = check(MODELS[model], smallest(model)).value
        name = next(n for n, f in type(value).model_fields.items() if (f.alias or n) == field["name"])
        held = getattr(value, name)
        if field.get("default_varies"):
            assert held is None  # who knows the region and the model fills it in
        elif isinstance(held, str):
            assert held.casefold() == field["default"].casefold(), (model, name)
        else:
            assert held == field["default"], (model, name)
            assert type(held) is bool or not isinstance(field["default"], bool)


def test_models_are_frozen_and_named_in_both_ways():
    request = speech.GenerateRequest(text="Hi", voice_id="nora")
    assert request == speech.GenerateRequest.model_validate({"text": "Hi", "voiceId": "nora"})
    with pytest.raises(ValidationError, match="frozen"):
        request.text = "other"
    assert list(request.model_dump(mode="json", exclude_unset=True)) == ["text", "voiceId"]


@pytest.mark.rule("version.two-models")
def test_two_models_and_their_tolerated_spellings():
    assert [model.value for model in speech.Model] == ["falcon-2", "gen2"]
    assert [model.value for model in speech.ModelVersion] == ["GEN2"]
    for spelling, model in (("FALCON", "falcon-2"), ("GEN2", "gen2"), ("falcon-2", "falcon-2")):
        assert check(speech.VoicesQuery, {"model": spelling}).value.model == model
        assert (
            check(speech.StreamRequest, {"text": "x", "voiceId": "y", "model": spelling}).value.model == model
        )
    assert check(speech.VoicesQuery, {}).value.model is speech.Model.GEN2
    for nonsense in ("falcon", "Gen2", "FALCON-2", ""):
        assert check(speech.VoicesQuery, {"model": nonsense}).problems


@pytest.mark.rule("dubbing.status-words-open")
def test_unknown_words_of_a_service_never_crash():
    job = dubbing.DubJobStatus.model_validate(
        {
            "job_id": "j",
            "status": "REVIEWING",
            "failure_code": "NEW",
            "download_details": [{"status": "HALF"}],
        }
    )
    assert job.status == "REVIEWING"
    assert job.download_details[0].status == "HALF"
    assert not dubbing.is_terminal(job.status)
    assert not dubbing.is_terminal("IN_PROGRESS")
    assert all(map(dubbing.is_terminal, ("COMPLETED", "PARTIALLY_COMPLETED", "FAILED")))
    voice = speech.Voice.model_validate({"voiceId": "v", "gender": "Robot", "somethingNew": 1})
    assert voice.gender == "Robot"
    assert speech.Voice(voice_id="v", gender="Female").gender is speech.Gender.FEMALE
    answer = dubbing.DubJob.model_validate(
        {"job_id": "j", "dubbing_type": "HUMAN", "file_name": "f", "priority": "URGENT", "target_locales": []}
    )
    assert (answer.dubbing_type, answer.priority) == ("HUMAN", "URGENT")
    assert dubbing.DestinationLocale(locale="fr_FR", language="French", supports=["QA", "X"]).supports == [
        "QA",
        "X",
    ]


@pytest.mark.rule("version.deprecated-response-fields")
def test_deprecated_fields_of_answers_are_kept_and_marked():
    word = speech.WordDuration.model_validate(
        {
            "word": "a",
            "startMs": 0,
            "endMs": 9,
            "sourceWordIndex": 3,
            "pitchScaleMaximum": 1.5,
            "pitchScaleMinimum": 1,
        }
    )
    assert (word.source_word_index, word.pitch_scale_maximum, word.pitch_scale_minimum) == (3, 1.5, 1)
    voice = speech.Voice.model_validate(
        {"voiceId": "v", "accent": "US", "displayLanguage": "English", "availableStyles": ["Calm"]}
    )
    assert (voice.accent, voice.display_language, voice.available_styles) == ("US", "English", ["Calm"])
    changed = ConvertResponse(
        audio_file="", audio_length_in_seconds=1, remaining_character_count=2, transcription="hello"
    )
    assert changed.transcription == "hello"
    marked = {
        (model.__name__, name)
        for model in (speech.GenerateResponse, speech.WordDuration, speech.Voice, ConvertResponse)
        for name, fact in read_field_facts(model).items()
        if fact.deprecated
    }
    assert marked == {
        ("GenerateResponse", "consumedCharacterCount"),
        ("WordDuration", "pitchScaleMaximum"),
        ("WordDuration", "pitchScaleMinimum"),
        ("WordDuration", "sourceWordIndex"),
        ("Voice", "accent"),
        ("Voice", "displayLanguage"),
        ("Voice", "availableStyles"),
        ("ConvertResponse", "transcription"),
    }


def test_whoever_sets_a_deprecated_field_is_pointed_to_the_new_one():
    checked = check(speech.GenerateRequest, {"text": "Hi", "voiceId": "nora", "multiNativeLocale": "fr-FR"})
    assert checked.value.multi_native_locale == "fr-FR"
    assert checked.deprecated == ("multiNativeLocale",)
    with pytest.warns(DeprecationWarning, match="^multiNativeLocale is deprecated; use locale$") as caught:
        warn_deprecated(speech.GenerateRequest, checked.deprecated, stacklevel=1)
    assert caught[0].filename == __file__
    assert make_deprecation_notice(speech.GenerateResponse, "consumedCharacterCount") == (
        "consumedCharacterCount is deprecated"
    )
    with warnings.catch_warnings(action="error"):
        warn_deprecated(speech.GenerateRequest, ())
        assert (
            check(
                speech.GenerateRequest, {"text": "Hi", "voiceId": "n", "multiNativeLocale": None}
            ).deprecated
            == ()
        )


def test_sources_of_a_clip_are_exactly_one():
    for model in ("ConvertRequest", "JobCreateRequest", "JobCreateWithProjectRequest"):
        given = smallest(model)
        (both,) = check(MODELS[model], given | {"file": b"RIFF"}).problems
        (neither,) = check(MODELS[model], given | {"file_url": None}).problems
        assert (both.field, both.problem) == ("file, file_url", "are both given")
        assert (neither.field, neither.problem) == ("file, file_url", "are both missing")
    with pytest.raises(ValidationError, match="both missing"):
        ConvertRequest(voice_id="nora")
    # Together with other problems it is named all the same.
    assert {p.field for p in check(ConvertRequest, {"pitch": 99}).problems} == {
        "voice_id",
        "pitch",
        "file, file_url",
    }


def test_forms_are_read():
    form = {
        "voice_id": "nora",
        "file_url": "https://example.org/a.wav",
        "sample_rate": "24000.0",
        "pitch": "-5",
        "retain_accent": "false",
        "audio_duration": "1.5",
        "pronunciation_dictionary": '{"live": {"type": "SAY_AS", "pronunciation": "lyve"}}',
    }
    value = check(ConvertRequest, form).value
    assert (value.sample_rate, value.pitch, value.retain_accent, value.audio_duration) == (
        24000,
        -5,
        False,
        1.5,
    )
    assert value.pronunciation_dictionary["live"].pronunciation == "lyve"
    (problem,) = check(ConvertRequest, form | {"pronunciation_dictionary": "{live"}).problems
    assert (problem.field, problem.problem) == ("pronunciation_dictionary", "is not a JSON object")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("fr-FR, de_de", ["fr_FR", "de_DE"]),
        (["fr-fr,es_419"], ["fr_FR", "es_419"]),
    ],
)
def test_target_locales_in_every_spelling(given, read):
    assert check(dubbing.ProjectUpdateRequest, {"target_locales": given}).value.target_locales == read


@pytest.mark.parametrize("given", [[], ["xx_YY"], 5, [None]])
def test_target_locales_that_are_none(given):
    assert check(dubbing.ProjectUpdateRequest, {"target_locales": given}).problems


@pytest.mark.parametrize(
    "secret",
    [
        socket.SocketQuery(api_key="sssecret"),
        dubbing.JobCreateRequest(file=b"x", target_locales=["fr_FR"], webhook_secret="sssecret"),
    ],
)
def test_secrets_are_in_no_repr(secret):
    assert "sssecret" not in repr(secret)
    assert "sssecret" not in str(secret)
