"""What cannot be served is refused with status, code, field, value and what is allowed, and costs nothing."""

import asyncio
import gzip
import io
import json
import zlib

import pytest

from speechframe.spec import chosen
from speechframe.spec.codes import HttpErrorCode, Status

PATH = "/v1/speech/generate"


@pytest.fixture
async def costs_nothing(http):
    before = await http.remaining()
    yield
    assert await http.remaining() == before


@pytest.mark.usefixtures("costs_nothing")
class TestMalformedBody:
    @pytest.mark.rule("status.400-malformed-body")
    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"", "the body is empty"),
            (b"{", "not valid JSON"),
            (b'{"text": "a"} {"text": "b"}', "Extra data"),
            (b"[]", "is a JSON array"),
            (b"null", "is a JSON null"),
            (b'{"text": "a", "text": "b"}', "'text' stands twice"),
            (b'{"text": "a", "pitch": NaN}', "NaN is not a JSON number"),
            (b'{"text": "\xff"}', "not UTF-8 (byte 10)"),
            (b'{"text": "a\nb"}', "Invalid control character"),
            (b"[" * 4000, "nested too deeply; allowed: 32"),
            (b'{"a":[' + b"0," * 5000 + b"0]}", "JSON of the body is refused: too many values"),
            (b'{"pitch": ' + b"1" * 5000 + b"}", "a whole number has 5,000 digits"),
        ],
    )
    async def test_is_400_saying_what_and_where(self, http, data, words):
        answer = await http.ask("POST", PATH, data=data)
        assert (answer.status, answer.code) == (400, HttpErrorCode.INVALID_REQUEST)
        assert words in answer.message

    async def test_a_body_that_claims_to_be_too_large_is_refused_unread(self, http):
        answer = await http.ask("POST", PATH, data=io.BytesIO(b" " * (10 << 20)))
        assert (answer.status, answer.code) == (400, HttpErrorCode.PAYLOAD_TOO_LARGE)
        assert "5,000 characters" in answer.message

    async def test_a_small_body_that_unpacks_to_a_huge_one_is_refused(self, http):
        bomb = gzip.compress(b" " * (50 << 20))
        answer = await http.ask("POST", PATH, data=bomb, headers={"Content-Encoding": "gzip"})
        assert (answer.status, answer.code) == (400, HttpErrorCode.PAYLOAD_TOO_LARGE)

    @pytest.mark.parametrize(("packing", "words"), [("gzip", "gzip"), ("br", "allowed as Content-Encoding")])
    async def test_a_body_that_does_not_unpack_is_400(self, http, packing, words):
        answer = await http.ask("POST", PATH, data=b"no gzip", headers={"Content-Encoding": packing})
        assert (answer.status, words in answer.message) == (400, True)

    async def test_a_packed_body_is_read(self, http):
        body = gzip.compress(json.dumps({"text": "hi", "voiceId": "nobody-at-all"}).encode())
        answer = await http.ask("POST", PATH, data=body, headers={"Content-Encoding": "gzip"})
        assert "nobody-at-all" in answer.message


async def test_what_is_refused_is_thrown_away_as_it_came(service, tools):
    packer = zlib.compressobj(9, wbits=31)
    bomb = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(16 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    bomb += block * ((1 << 20) // len(block))
    process = tools.psutil.Process(service.pid)
    host, _, port = service.url.removeprefix("http://").partition(":")

    async def seconds(path, header):
        started = process.cpu_times()
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\napi-key: nobody\r\n{header}Content-Length: {len(bomb)}\r\n\r\n"
        # The second request is read once the rest of the first one is.
        writer.write(
            head.encode() + bomb + b"GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        answers = await reader.read()
        writer.close()
        assert answers.startswith((b"HTTP/1.1 403", b"HTTP/1.1 404", b"HTTP/1.1 405", b"HTTP/1.1 200"))
        assert b"openapi" in answers
        return sum(process.cpu_times()[:2]) - sum(started[:2])

    for path in (PATH, "/v1/voice-changer/convert", "/v1/dub/jobs/create", "/nowhere", "/healthz"):
        plain_s = await seconds(path, "")
        assert await seconds(path, "Content-Encoding: gzip\r\n") < 3 * plain_s + 0.3, path


@pytest.mark.usefixtures("costs_nothing")
class TestInvalidField:
    @pytest.mark.rule("status.400-invalid-field", "limit.pitch-rate", "limit.variation", "limit.audio-duration",
                      "version.two-models")  # fmt: skip
    @pytest.mark.parametrize(
        ("field", "value", "allowed"),
        [
            ("voiceId", "nobody-at-all", "the voice listing"),
            ("modelVersion", "FALCON", "GEN2"),
            ("format", "M4A", "MP3, WAV, FLAC, ALAW, ULAW, PCM, OGG"),
            ("sampleRate", 16000, "8000, 24000, 44100, 48000"),
            ("channelType", "QUAD", "STEREO"),
            ("pitch", 51, "from -50 to 50"),
            ("rate", -51, "from -50 to 50"),
            ("variation", 6, "from 0 to 5"),
            ("audioDuration", -0.1, "at least 0"),
            ("locale", "fr-FR", "en-US"),
            ("style", "Shouting", "Plain"),
            ("wordDurationsAsOriginalText", [], "true or false"),
            ("text", " \n\t", "text"),
            ("text", "x" * 5001, "5,000"),
            ("text", "<speak>hello</speak>", "[pause 1s]"),
            ("pronunciationDictionary", {"tomato": {"type": "XSAMPA", "pronunciation": "t"}}, "IPA"),
        ],
    )
    async def test_is_400_naming_field_value_and_what_is_allowed(self, http, field, value, allowed):
        answer = await http.generate(**{"text": "hello there", field: value})
        assert (answer.status, answer.code) == (400, HttpErrorCode.INVALID_REQUEST)
        assert answer.message.startswith(field)
        assert allowed in answer.message
        assert len(answer.body) < 4000
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert str(value) in answer.message

    async def test_every_problem_is_told_at_once(self, http):
        answer = await http.generate(text=None, voiceId=None, rate="x", format="M4A")
        for words in ("text is missing", "voiceId is missing", "rate", "format"):
            assert words in answer.message

    async def test_the_nearest_voice_is_offered(self, http):
        assert "en-US-moody" in (await http.generate(voiceId="modyy")).message

    async def test_a_style_nearly_right_is_offered(self, http):
        assert "did you mean Plain?" in (await http.generate(style="Plian")).message

    async def test_what_only_the_engine_can_see_is_400_too(self, http):
        answer = await http.generate("refuse this")
        assert (answer.status, answer.code) == (400, HttpErrorCode.INVALID_REQUEST)
        assert answer.message == "text: has no speakable character for this voice"

    @pytest.mark.parametrize("take", ["-1", "1.5", "", "²", str(2**31)])
    async def test_a_take_that_is_none(self, http, take):
        answer = await http.generate(headers={chosen.TAKE_HEADER: take})
        assert answer.status == 400
        assert answer.message.startswith(chosen.TAKE_HEADER)

    @pytest.mark.parametrize("name", ["", "x" * 256])
    async def test_an_idempotency_key_that_is_none(self, http, name):
        answer = await http.generate(headers={chosen.IDEMPOTENCY_HEADER: name})
        assert answer.status == 400
        assert answer.message.startswith(chosen.IDEMPOTENCY_HEADER)


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "allow"),
    [
        ("GET", "/", 404, "NOT_FOUND", None),
        ("POST", "/v2/speech/generate", 404, "NOT_FOUND", None),
        ("GET", "/v1/speech/generate", 405, "METHOD_NOT_ALLOWED", "OPTIONS, POST"),
        ("GET", "/v1/speech/stream", 405, "METHOD_NOT_ALLOWED", "OPTIONS, POST"),
        ("DELETE", "/v1/limits", 405, "METHOD_NOT_ALLOWED", "GET, HEAD, OPTIONS"),
        ("BREW", "/healthz", 400, "INVALID_REQUEST", None),  # no method of HTTP
    ],
)
async def test_unknown_paths_and_wrong_methods(http, method, path, status, code, allow):
    answer = await http.ask(method, path, key=None)
    assert (answer.status, answer.code, answer.headers.get("Allow")) == (status, code, allow)


@pytest.mark.parametrize("path", ["/v1/speech/voices", "/healthz"])
async def test_head_is_get_without_a_body(http, path):
    full, head = await http.get(path), await http.ask("HEAD", path)
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(full.body))


async def test_options_say_what_an_address_takes_and_allow_no_other_page(http):
    answer = await http.ask("OPTIONS", PATH, key=None, headers={"Origin": "https://example.com"})
    assert (answer.status, answer.headers["Allow"]) == (204, "POST, OPTIONS")
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.rule("status.retry-with-backoff", "version.codes-stable")
def test_codes_say_whether_to_try_again():
    for code in HttpErrorCode:
        assert code.status.retryable == (code.status in {408, 429, 500, 503})
    assert {code.value for code in HttpErrorCode if code.status is Status.BAD_REQUEST} == {
        "INVALID_REQUEST", "MISSING_KEY", "PAYLOAD_TOO_LARGE",
    }  # fmt: skip
