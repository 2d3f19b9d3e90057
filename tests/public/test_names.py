"""What users may rely on: public names, one declaration a verb, an import that costs next to nothing."""

import inspect
import re
import subprocess
import sys

import pytest

import speechframe
from speechframe import aio, api
from speechframe.spec.limits import (
    GENERATE_SAMPLE_RATES_HZ,
    PITCH,
    RATE,
    STREAM_SAMPLE_RATES_HZ,
    VARIATION,
    get_default_sample_rate_hz,
)
from speechframe.spec.speech import Format, Model

PUBLIC = """
    Alert AnalysisError Answer Attempt AudioError Backend BadAnswer BadRequest Bridge BudgetExceeded Changes
    Client Clip ConnectionFailed EngineError Estimate ExportError ExportFormat ExportReport FieldProblem Finding Forecast InvalidRows JobFailed LaneSpec
    ListeningError LocalService NotARun Opened PaymentRequired PermissionDenied RateLimited Record Request
    RequestTimeout Run RunLocked RunMismatch RunOptions ServedTest ServerError ServiceError Settings
    SettingsError SpeechframeError StoreError Stream StreamBroken StreamSession StringsReport SyncClient SyncStream
    SyncStreamSession TimedOut Unavailable UsageTable VoteRefused __version__ aio balanced browse change_voice
    changes check_budgets col compare_voices configure correct coverage dub export forecast gallery generate listening_test
    local_service open_run open_test play plot_burn_down plot_usage quality read_strings read_votes receive_webhooks reconcile
    report resume review run say serve_test split stream to_datasets transcribe translate tune_allocator usage utterances voices watch write_strings
"""


def test_public_names_are_exactly_these():
    assert sorted(speechframe.__all__) == sorted(PUBLIC.split())
    assert set(PUBLIC.split()) <= set(dir(speechframe))


def test_every_public_name_loads_and_is_documented():
    assert [name for name in PUBLIC.split() if not (getattr(speechframe, name).__doc__ or "").strip()] == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'speak'"):
        speechframe.speak  # noqa: B018


def test_import_is_light():
    heavy = ("pandas", "pyarrow", "aiohttp", "numpy", "pydantic")
    code = f"import sys, speechframe; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_sync_and_async_faces_agree():
    for name in (
        "generate",
        "change_voice",
        "translate",
        "dub",
        "transcribe",
        "run",
        "resume",
        "changes",
        "say",
        "voices",
        "export",
        "to_datasets",
    ):
        sync_face, async_face = getattr(api, name), getattr(aio, name)
        assert inspect.signature(sync_face) == inspect.signature(async_face), name
        assert sync_face.__doc__ == async_face.__doc__
        assert inspect.iscoroutinefunction(async_face)
        assert not inspect.iscoroutinefunction(sync_face)


def test_the_two_faces_of_a_stream_differ_in_what_they_return_alone():
    ours, twin = inspect.signature(aio.stream), inspect.signature(api.stream)
    assert (ours.return_annotation, twin.return_annotation) == (speechframe.Stream, speechframe.SyncStream)
    assert ours.parameters == twin.parameters
    assert api.stream.__doc__ == aio.stream.__doc__
    assert inspect.iscoroutinefunction(aio.stream)
    assert not inspect.iscoroutinefunction(api.stream)


def test_both_faces_have_every_verb_and_nothing_else():
    public = {n for n in PUBLIC.split() if inspect.isfunction(getattr(api, n, None))} - {"configure"}
    own = {n for n, f in vars(aio).items() if inspect.iscoroutinefunction(f) and not n.startswith("_")}
    assert public == own - {"resolve_service"}


def test_run_options_are_stated_alike():
    typed = set(speechframe.RunOptions.__annotations__)
    with pytest.raises(speechframe.SettingsError) as refused:
        api.generate(["Hello."], voice="nora", colour="blue")
    assert str(refused.value).partition("there are ")[2].split(", ") == sorted(typed)
    described = inspect.getdoc(speechframe.RunOptions)
    assert [name for name in typed if f"\n{name}\n" not in described] == []


def test_the_figures_people_read_are_those_of_the_document():
    text = inspect.getdoc(api.generate)
    streamed = [*sorted(set(STREAM_SAMPLE_RATES_HZ) - set(GENERATE_SAMPLE_RATES_HZ))]
    streamed.append(get_default_sample_rate_hz(Model.FALCON_2))
    rates = [f"{rate:g}" for rate in (*GENERATE_SAMPLE_RATES_HZ, *streamed)]
    assert re.findall(r"\b\d{4,5}\b", text) == rates
    assert f"{PITCH.low} to {PITCH.high}." in text
    assert (PITCH.low, PITCH.high) == (RATE.low, RATE.high)
    assert f"from {VARIATION.low} to {VARIATION.high} " in text
    assert f"(default {VARIATION.default})" in text
    assert [f for f in Format if f"``{f.value}``" not in text] == []
