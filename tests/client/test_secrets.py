"""The key is on the wire and nowhere else: in no repr, message, log, traceback, pickle, at no other host."""

import html
import json
import logging
import pickle
import time
import traceback
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from speechframe.errors import SettingsError, SpeechframeError
from speechframe.old_client import Client, Patience, SyncClient
from speechframe.old_client._hidden import Redactor
from speechframe.old_client.http_stream import make_stream_call
from speechframe.settings import Settings
from speechframe.settings.hidden import MASK, Hidden

STREAM = "/v1/speech/stream"


def _everything_shown(error):
    """What the most talkative crash report would print."""
    parts = [str(error), repr(error), repr(error.args), repr(vars(error))]
    while error is not None:
        captured = traceback.TracebackException.from_exception(error, capture_locals=True)
        parts += [*captured.format(), *traceback.format_exception(error)]
        error = error.__cause__ or error.__context__
    return "\n".join(parts)


async def _failure(attempt):
    # A frame of its own: those of the tests hold the bare key.
    try:
        await attempt
    except SpeechframeError as error:
        return error
    raise AssertionError("nothing was raised")


def _failure_of(function, *args, **options):
    try:
        function(*args, **options)
    except SpeechframeError as error:
        return error
    raise AssertionError("nothing was raised")


def _spellings(key):
    return {key, key[:12], json.dumps(key), quote(key), quote(key, safe=""), key[-12:]}


def _assert_hidden(shown, key):
    # Not `in` within the assertion: explaining it over megabytes of traceback takes minutes.
    found = [shown[max(0, shown.find(s) - 200) :][:300] for s in _spellings(key) if s in shown]
    assert found == []


@pytest.fixture
def failures(odd, key):
    """Every way an attempt can fail, each echoing the key as far as it can."""
    echo = f"no such key {key} ({quote(key)}), you sent api-key: {key}"
    text = echo.encode()
    json_body = json.dumps({"error_message": echo, "error_code": key, "trace_id": key})
    return {
        "json error": odd.answer(403, json_body.encode(), {"X-Trace-Id": key}),
        "nested error": odd.answer(500, {"error": {"message": echo, "code": key}}),
        "escaped error": odd.answer(400, json_body.replace("/", "\\/").encode()),
        "plain error": odd.answer(500, text),
        "key at the end of a long error": odd.answer(500, b"x" * (2000 - 40) + text),
        "html error": odd.answer(502, b"<html><body><h1>" + text + b"</h1></body>"),
        "redirect": odd.redirect(f"https://{quote(key, safe='')}.example.com/?k={key}"),
        "bad answer": odd.answer(200, text, {"X-Trace-Id": key}),
        "bad encoding": odd.answer(200, text, {"Content-Encoding": key}),
        "no http": odd.raw(text + b"\r\n\r\n"),
        "bad header": odd.raw(b"HTTP/1.1 200 OK\r\n" + text + b"\r\n\r\n"),
        "large header": odd.raw(b"HTTP/1.1 200 OK\r\nX: " + text * 500 + b"\r\n\r\n"),
        "truncated": odd.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + text),
        "reset": odd.reset(),
        "hang": odd.hang(),
        "audio behind a signed link": odd.spoken(
            encodedAudio=None, audioFile=f"{odd.url}/gone.wav?sig={key}"
        ),
    }


NAMES = (
    "json error",
    "nested error",
    "escaped error",
    "plain error",
    "key at the end of a long error",
    "html error",
    "redirect",
    "bad answer",
    "bad encoding",
    "no http",
    "bad header",
    "large header",
    "truncated",
    "reset",
    "hang",
    "audio behind a signed link",
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.quiet) if name == "hang" else name for name in NAMES]
)
async def test_no_failure_shows_the_key(odd, settings, call, key, failures, name, caplog):
    caplog.set_level(logging.DEBUG)
    odd.script(failures[name])
    async with Client(settings, patience=Patience(attempts=2, first_wait_s=0.001)) as client:
        failed = [await _failure(client.send_once(call, timeout_s=0.3 if name == "hang" else 60))]
        if name != "hang":
            failed.append(await _failure(client.call(call)))
    for error in failed:
        _assert_hidden(_everything_shown(error), key)
        _assert_hidden(repr(pickle.dumps(error)), key)
    assert any(seen.headers["api-key"] == key for seen in odd.seen), "the key was never sent"
    _assert_hidden(caplog.text, key)


async def test_no_listing_failure_shows_key_or_token(odd, client, key):
    token = "tok-0123456789-abcdef"
    for path in ("/v1/speech/voices?model=gen2", "/v1/auth/token"):
        odd.script(odd.answer(403, {"message": f"{key} {token}"}), path=path.partition("?")[0])
    _assert_hidden(_everything_shown(await _failure(client.token())), key)
    shown = _everything_shown(await _failure(client.voices(token=token)))
    _assert_hidden(shown, token)
    _assert_hidden(shown, key)
    odd.script(
        odd.answer(200, {"voices": []}, headers={"X-Trace-Id": f"for {token}"}), path="/v1/speech/voices"
    )
    error = await _failure(client.voices(token=token))
    assert error.trace_id == "for ***"
    _assert_hidden(_everything_shown(error), token)


def test_a_sync_failure_shows_no_key(odd, settings, call, key, failures):
    odd.script(failures["json error"])
    with SyncClient(settings) as client:
        _assert_hidden(_everything_shown(_failure_of(client.send_once, call)), key)


async def test_warnings_and_trace_ids_of_good_answers_show_no_key(odd, client, call, key):
    odd.script(
        odd.spoken(warning=f"weak key {key}", headers={"X-Speech-Warning": key, "X-Trace-Id": f"t-{key}"})
    )
    spoken = await client.send_once(call)
    assert spoken.trace_id == "t-***"
    assert set(spoken.warnings) == {"weak key ***", "***"}
    _assert_hidden(repr(spoken), key)


def test_reprs_show_no_key(settings, call, key):
    for shown in (Client(settings), SyncClient(settings), settings, call):
        _assert_hidden(repr(shown) + str(shown), key)


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "http://far.example.com"},
        {"base_url": "nonsense"},
        {"base_url": None},
        {"base_url": "https://far.example.com", "regions": ("mars",)},
        {"base_url": "https://far.example.com", "regions": ("uk",)},
    ],
)
@pytest.mark.parametrize("kind", [Client, SyncClient])
def test_a_client_that_cannot_be_made_shows_no_key(kind, wrong, key, monkeypatch):
    monkeypatch.delenv("SPEECHFRAME_BASE_URL", raising=False)
    for passed in (SecretStr(key), Hidden(key)):
        _assert_hidden(_everything_shown(_failure_of(kind, api_key=passed, **wrong)), key)


def test_a_bare_key_is_hidden_below_the_line_that_passes_it(key):
    error = _failure_of(Client, api_key=key, base_url="http://far.example.com")
    error.__traceback__ = error.__traceback__.tb_next
    _assert_hidden(_everything_shown(error), key)


@pytest.mark.parametrize("bad", ["sk-secret\r\nX-Evil: 1", "sk-secret-ключ", "\x00sk-secret"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_key_that_is_no_header_is_refused_without_showing_it(bad, whole):
    given = {"api_key": SecretStr(bad), "base_url": "https://far.example.com"}
    error = _failure_of(lambda **fields: Client(Settings(**fields)) if whole else Client(**fields), **given)
    assert isinstance(error, SettingsError)
    _assert_hidden(_everything_shown(error), "sk-secret")


def _cut(key, most):
    """A text that would be shortened in the middle of the key."""
    return "x" * (most - len(key) + 1) + key + "z" * 40


async def test_what_is_shortened_is_masked_before(odd, client, call, key):
    """Half a key is no longer found, and is most of a key."""
    twice = quote(quote(_cut(key, 480), safe=""), safe="")
    head = {"X-Trace-Id": _cut(key, 128), "X-Speech-Warning": twice}
    odd.script(odd.spoken(headers=head, warning=_cut(key, 500)))
    spoken = await client.send_once(call)
    assert len(spoken.warnings) == 2
    _assert_hidden(repr(spoken), key)

    audio = make_stream_call("Hello", voice="ivy")
    odd.script(odd.answer(200, b"RIFF", {**head, "Content-Type": f"text/{_cut(key, 50)}"}), path=STREAM)
    shown = [await _failure(client.send_once(audio)), await _failure(client.stream("Hello", voice="ivy"))]
    odd.script(odd.answer(200, key.encode()), path=STREAM)
    shown.append(await _failure(client.send_once(audio)))
    for step in (
        odd.spoken(headers=head, audioLengthInSeconds=_cut(key, 40)),
        odd.spoken(headers=head, audioLengthInSeconds=key),
        odd.raw(
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nX-Trace-Id: %b\r\n\r\n{" % _cut(key, 128).encode()
        ),
        odd.answer(400, {"message": _cut(key, 500), "trace_id": _cut(key, 128), "code": _cut(key, 64)}),
        odd.redirect(f"https://{'a.' * 900}example.com/"),
    ):
        odd.script(step)
        shown.append(await _failure(client.send_once(call)))
    for error in shown:
        _assert_hidden(_everything_shown(error), key)
        assert len(str(error)) < 800
    assert "an address that cannot be read" in str(shown[-1])


async def test_no_good_answer_shows_the_key(odd, client, key):
    texts = [{"source_text": "Hi", "translated_text": f"Salut {key}"}]
    odd.script(odd.answer(200, {"translations": texts, "metadata": {}}), path="/v1/text/translate")
    assert (await client.translate(["Hi"], target="fr-FR")).translations == ("Salut ***",)

    nested = json.loads("[" * 900 + "]" * 900)
    page = {"service": "speechframe", "identity": key, "identities": {key: [f"<{key}>"]}, "deep": nested}
    odd.script(odd.answer(200, page), path="/v1/limits")
    said = await client.limits()
    assert (said["identity"], said["identities"]) == ("***", {"***": ["<***>"]})

    styles = {"en-US": {"availableStyles": [key], "detail": key}, key: {}}
    voices = [{"voiceId": f"en-US-{key}", "displayName": key, "locale": key, "supportedLocales": styles}]
    odd.script(odd.answer(200, voices), path="/v1/speech/voices")
    for token in (None, "tok-0123456789-abcdef"):
        (voice,) = await client.voices(token=token)
        assert voice.voice_id == "en-US-***"
        _assert_hidden(repr(voice), key)


# To whom it goes.


async def test_no_other_host_gets_the_key(odd, client, call, key):
    for status in (301, 307):
        odd.script(odd.redirect(f"{odd.other_url}/v1/speech/voices", status), path="/v1/speech/voices")
        odd.script(odd.redirect(f"{odd.other_url}/v1/auth/token", status), path="/v1/auth/token")
        odd.script(odd.redirect(f"{odd.other_url}/v1/limits", status), path="/v1/limits")
        odd.script(odd.redirect(f"{odd.other_url}/v1/speech/generate", status))
        for attempt in (client.voices(), client.token(), client.send_once(call)):
            with pytest.raises(SpeechframeError, match=r"redirects to 127\.0\.0\.2"):
                await attempt
        assert await client.limits() is None
    assert len(odd.seen) == 8
    assert all(seen.host.startswith("127.0.0.1") for seen in odd.seen)


def test_plain_http_to_another_machine_is_refused_unless_allowed(key):
    with pytest.raises(SettingsError, match="plain http"):
        Client(Settings(api_key=SecretStr(key), base_url="http://far.example.com"))
    Client(Settings(api_key=SecretStr(key), base_url="http://far.example.com", allow_http=True))


async def test_keys_of_netrc_stay_where_they_are(odd, client, call, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    await client.send_once(call)
    assert "Authorization" not in odd.seen[0].headers


def test_every_spelling_of_a_secret_is_masked():
    key = 'k"e\\y/+ 1'
    spelled = [
        key,
        json.dumps(key)[1:-1],
        json.dumps(key)[1:-1].replace("/", "\\/"),
        quote(key),
        quote(key, safe="").lower(),
        html.escape(key),
        key.replace("+", "&#x2B;").replace("/", "&#47;"),
        key.replace("+", "\\u002B").upper(),
    ]
    for spelling in spelled:
        assert Redactor(key).clean(f"<{spelling}>") == "<***>"
    assert Redactor(key).clean("other text") == "other text"


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=60), st.text(max_size=50)
)
def test_any_key_is_masked_in_any_text(key, text):
    assert key.lower() not in Redactor(key).clean(text + key + text).replace(MASK, "\n").lower()
    assert Redactor(key).clean(key) == MASK


@pytest.mark.quiet
@pytest.mark.parametrize("key", ["sk-0123456789-very-secret/and+odd", "\\" * 40 + "x", "&" * 40, "a" * 60])
def test_text_that_is_nearly_the_key_is_read_in_no_time(key):
    nearly = [key[:-1] + "!", json.dumps(key[:-1]), html.escape(key[:-1]), "\\" * 500, "&amp;" * 500]
    started = time.thread_time()
    for text in nearly:
        Redactor(key).clean((text + " ") * 100)
    assert time.thread_time() - started < 1


def test_of_two_secrets_the_longer_is_masked_whole():
    assert Redactor("abc", "abcdef").clean("abcdef abc") == "*** ***"


async def test_a_key_as_short_as_a_word_changes_nothing_that_is_paid_for_or_chosen_by(odd, settings, call):
    words = [{"word": "demo", "startMs": 0, "endMs": 9}]
    odd.script(odd.spoken(wordDurations=words))
    voices = [{"voiceId": "en-US-demo", "displayName": "Demo", "locale": "en-US"}]
    odd.script(odd.answer(200, voices), path="/v1/speech/voices")
    texts = [{"source_text": "Hi", "translated_text": "une demo"}]
    odd.script(odd.answer(200, {"translations": texts}), path="/v1/text/translate")
    odd.script(odd.answer(200, {"service": "speechframe", "identity": "demo/1"}), path="/v1/limits")
    async with Client(settings, api_key="demo") as client:
        assert (await client.call(call)).words == [("demo", 0, 9)]
        (voice,) = await client.voices()
        assert (voice.voice_id, voice.display_name) == ("en-US-demo", "Demo")
        assert (await client.translate(["Hi"], target="fr-FR")).translations == ("une demo",)
        assert (await client.limits())["identity"] == "demo/1"
        odd.script(odd.answer(403, {"error_message": "no such key: demo"}), path="/v1/speech/voices")
        assert "demo" not in str(await _failure(client.voices()))


async def test_an_answer_whose_words_echo_the_key_does_not_show_it(odd, settings, call, key):
    words = [
        {"word": word, "startMs": i, "endMs": i + 1} for i, word in enumerate(["Hello", key, f"<{key}>"])
    ]
    odd.script(odd.spoken(wordDurations=words))
    async with Client(settings) as client:
        spoken = await client.call(call)
    assert spoken.words == [("Hello", 0, 1), (MASK, 1, 2), (f"<{MASK}>", 2, 3)]
