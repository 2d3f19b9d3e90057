"""Forms from the wire: multipart in whatever pieces, bounded in every direction, refused in words that say which."""

import asyncio
import contextlib
import dataclasses
import io
import os
import resource
import time
from types import SimpleNamespace
from urllib.parse import urlencode

import aiohttp
import psutil
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer as Server
from hypothesis import given
from hypothesis import strategies as st
from multipart import MultipartError, MultipartSegment

from speechframe.local.service.config import ServiceConfig
from speechframe.local.service.http.answers import Refusal, build_error_response
from speechframe.local.service.http.forms import make_parser, receive_form
from speechframe.local.service.http.threads import FairThreads
from speechframe.local.service.http.uploads import Uploads
from speechframe.spec.chosen import MAX_FORM_PARTS

MIB = 1 << 20
BOUNDARY = b"x-boundary-x"
KIND = "multipart/form-data; boundary=x-boundary-x"


def part(name, value, *, file_name=None, kind=None, extra=b""):
    disposition = f'form-data; name="{name}"' + (f'; filename="{file_name}"' if file_name is not None else "")
    head = f"Content-Disposition: {disposition}\r\n" + (f"Content-Type: {kind}\r\n" if kind else "")
    return b"--" + BOUNDARY + b"\r\n" + head.encode() + extra + b"\r\n" + value + b"\r\n"


END = b"--" + BOUNDARY + b"--\r\n"


def parsed(body, sizes=()):
    """Return the parts of a body that is fed in pieces of these sizes, the rest at once."""
    parser = make_parser(KIND)
    found = []
    for size in (*sizes, len(body)):
        for event in parser.parse(body[:size]) if body[:size] else ():
            if isinstance(event, MultipartSegment):
                found.append([event, b""])
            elif event is not None:
                found[-1][1] += event
        body = body[size:]
    parser.close()
    return found


# The parser

names = st.text(
    st.characters(codec="utf-8", exclude_characters='"\\\r\n\0', exclude_categories=["Cc", "Zl", "Zp"]),
    min_size=1,
    max_size=20,
).filter(lambda name: name == name.strip() and "%" not in name and len(name.splitlines()) == 1)
contents = st.binary(max_size=300) | st.lists(
    st.sampled_from([b"\r\n", b"--", BOUNDARY, b"\r\n--x", b"\r", b"\n", b"\r\n--" + BOUNDARY[:-1], b"a"]),
    max_size=12,
).map(b"".join)


@given(
    st.lists(st.tuples(names, contents, st.booleans()), max_size=6),
    st.lists(st.integers(1, 40), max_size=30),
    st.binary(max_size=40),
)
def test_whatever_is_in_the_parts_and_however_the_bytes_come(parts, sizes, epilogue):
    parts = [(name, value, file) for name, value, file in parts if b"--" + BOUNDARY not in value]
    body = b"".join(part(name, value, file_name="a" if file else None) for name, value, file in parts)
    found = parsed(body + END + epilogue, sizes)
    assert [(head.name, value, head.filename is not None) for head, value in found] == parts


@given(st.binary(max_size=200), st.lists(st.integers(1, 9), max_size=30))
def test_any_bytes_are_a_form_or_broken_and_nothing_else(data, sizes):
    for body in (data, b"--" + BOUNDARY + data, part("a", data) + data):
        with contextlib.suppress(MultipartError):
            parsed(body, sizes)


@given(st.integers(0, len(part("a", b"12345") + part("b", b"6") + END) - 3))
def test_a_body_that_is_cut_off_anywhere_is_broken(at):
    with pytest.raises(MultipartError):
        parsed((part("a", b"12345") + part("b", b"6") + END)[:at])


@pytest.mark.quiet
@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    "unit", [";", "; a=b", '; b="', '\\";', "\r\nx:", "\r\n ", "%41", "; filename*1=a", "a/"]
)
@pytest.mark.parametrize("start", ["", '; b="', "; filename*=UTF-8''", "\r\nContent-Type: "])
def test_whatever_heads_are_full_of_they_are_read_in_one_pass(start, unit):
    disposition = f'Content-Disposition: form-data; name="a"{start}'
    head = (disposition + unit * 8000)[:8100].encode()
    body = (b"--" + BOUNDARY + b"\r\n" + head + b"\r\n\r\n1\r\n") * 100 + END
    started = time.process_time()
    with contextlib.suppress(MultipartError):
        parsed(body)
    with contextlib.suppress(Refusal):
        make_parser("multipart/form-data" + start + unit * 8000)
    assert time.process_time() - started < 0.3


def test_headers_as_clients_write_them():
    head = parsed(
        b"preamble\r\n--" + BOUNDARY + b"\r\ncontent-type: AUDIO/Wav; rate=1\r\n"
        b"CONTENT-DISPOSITION: Form-Data; filename=a.wav; name=file\r\n\r\n1\r\n" + END
    )[0][0]
    assert (head.name, head.filename, head.content_type) == ("file", "a.wav", "audio/wav")
    raw = parsed(part("datei", b"1", file_name="größe.wav") + END)[0][0]
    assert raw.filename == "größe.wav"


# The reader, on a real port


@pytest.fixture
async def reading(tmp_path):
    """Serve a form reader that tells what it read and what was on disk meanwhile."""
    uploads, threads = Uploads(tmp_path, "me"), FairThreads(2)
    config = ServiceConfig(data=tmp_path, max_upload_mb=2, max_body_bytes=20_000)

    async def read(request):
        limits = dataclasses.replace(config, body_timeout_s=made.body_timeout_s)
        parts = SimpleNamespace(
            config=limits, uploads=uploads, threads=threads, wait_for_turn=lambda _: asyncio.sleep(0)
        )
        try:
            async with receive_form(request, parts, b"key", files=("file",)) as form:
                there = [path for path in (tmp_path / "uploads").rglob("*") if path.is_file()]
                said = {
                    "fields": {name: value or "(file)" for name, value in form.collect_fields(lists=request.query.getall("list", ())).items()},
                    "files": {name: [file.path.stat().st_size, file.size_bytes, file.sha256.hex()] for name, file in form.files.items()},
                    "modes": [oct(path.stat().st_mode & 0o777) for path in there],
                }  # fmt: skip
            return web.json_response(said)
        except Refusal as refusal:
            return build_error_response(refusal, "trace")

    app = web.Application(client_max_size=0)
    app.router.add_post("/", read)
    async with Server(app) as server, aiohttp.ClientSession() as session:

        async def post(data=None, kind=KIND, **options):
            data = io.BytesIO(data) if isinstance(data, bytes) else data
            headers = {"Content-Type": kind} if kind else {}
            skip = () if kind else ("Content-Type",)
            async with session.post(
                server.make_url("/"), data=data, headers=headers, skip_auto_headers=skip, **options
            ) as answer:
                said = await answer.json()
                assert answer.status in {200, 400, 500}
                return SimpleNamespace(status=answer.status, said=said, message=said.get("error_message", ""))

        made = SimpleNamespace(
            post=post, server=server, session=session, folder=tmp_path / "uploads" / "me", body_timeout_s=60
        )
        yield made


def left(reading):
    return list(reading.folder.iterdir())


async def test_fields_and_a_file_arrive_and_nothing_is_left(reading):
    body = part("voice_id", "größe".encode()) + part("file", b"\r\n--x" * 1000, file_name="a.wav") + END
    answer = await reading.post(body)
    assert answer.said["fields"] == {"voice_id": "größe", "file": "(file)"}
    assert answer.said["files"]["file"][:2] == [5000, 5000]
    assert answer.said["modes"] == ["0o600"]
    assert left(reading) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (part("file", b"hello") + END, "file is a text"),
        (part("file", b"1", file_name="a") * 2 + END, "file is given more than once"),
        (part("voice_id", b"1") * 2 + END, "voice_id is given 2 times"),
        (part("voice_id", b"\xff") + END, "voice_id is not UTF-8 (byte 0)"),
        (part("file", b"1" * 70_000, file_name="a"), "cut off"),
        (part("text", b"1" * 10_001) * 2 + END, "too large"),
        (part("file", b"1" * (2 * MIB + 1), file_name="a") + END, "too large"),
        (part("other", b"1" * (2 * MIB + 20_001), file_name="a") + END, "too large"),
    ],
)
async def test_what_is_no_good_form_is_400_that_says_which(reading, body, words):
    answer = await reading.post(body)
    assert answer.status == 400
    assert words in answer.message
    assert left(reading) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"hello", "is cut off"),
        (part("a", b"1"), "is cut off"),
        (b"--" + BOUNDARY + b"\r\n\r\nvalue\r\n" + END, "Content-Disposition"),
        (b"--" + BOUNDARY + b'\r\nContent-Disposition: attachment; name="a"\r\n\r\n1\r\n' + END, "Content-Disposition"),
        (part("", b"1") + END, "a part of the form has no name"),
        (part("a", b"1", extra=b"Content-Transfer-Encoding: base64\r\n") + END, "a has a Content-Transfer-Encoding"),
        (part("a", b"1", extra=b"X: " + b"x" * 9000 + b"\r\n") + END, "headers of 8,192 bytes"),
        (part("a", b"1", extra=b"X: \xff\r\n") + END, "failed to decode"),
        (part("a", b"1").replace(BOUNDARY, BOUNDARY + b"yz") + END, "after first boundary"),
        (part("a", b"1") * (MAX_FORM_PARTS + 1) + END, f"at most {MAX_FORM_PARTS} parts"),
    ],
)  # fmt: skip
async def test_what_is_broken_is_said(reading, body, words):
    answer = await reading.post(body)
    assert answer.status == 400
    assert words in answer.message


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (None, "the Content-Type is missing"),
        ("application/json", "the Content-Type is 'application/json'"),
        ("multipart/form-data", "names no boundary"),
        ("multipart/form-data; boundary=" + "x" * 71, "boundary"),
    ],
)
async def test_another_content_type_is_400(reading, kind, words):
    answer = await reading.post(b"{}", kind=kind)
    assert answer.status == 400
    assert words in answer.message


async def test_a_file_needs_no_name_when_its_type_says_that_it_is_one(reading):
    answer = await reading.post(part("file", bytes(2 * MIB), kind="application/octet-stream") + END)
    assert answer.said["files"]["file"][0] == 2 * MIB


async def test_a_disk_that_takes_no_more_is_said_and_nothing_is_left(reading, file_limit):
    file_limit(MIB)
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n%b\r\n--b--\r\n'
    answer = await reading.post(body % os.urandom(MIB + MIB // 2), "multipart/form-data; boundary=b")
    assert (answer.status, answer.said["error_code"]) == (500, "INTERNAL_ERROR")
    assert answer.message == "the service cannot write the upload: File too large; nothing was billed"
    assert not list(reading.folder.iterdir())


@pytest.fixture
def file_limit():
    """Let this process write no file beyond a size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_an_urlencoded_form_without_a_file(reading):
    kind = "application/x-www-form-urlencoded"
    fields = {"voice_id": "größe & co", "file_url": "http://x/?a=b%2Fc", "empty": ""}
    answer = await reading.post(urlencode(fields).encode(), kind=f"{kind}; charset=utf-8")
    del fields["empty"]
    assert answer.said["fields"] == fields
    assert "too large" in (await reading.post(b"a=" + b"1" * 20_000, kind=kind)).message
    assert "is not" in (await reading.post(b"a=%ff", kind=kind)).message
    assert "is not" in (await reading.post(b"a=1&" * (MAX_FORM_PARTS + 1) + b"b=2", kind=kind)).message
    assert "2 times" in (await reading.post(b"a=1&a=2", kind=kind)).message


@pytest.mark.quiet
@pytest.mark.parametrize("pause_s", [0.2, 30])
async def test_a_body_that_stalls_is_400_and_one_that_only_pauses_is_not(reading, pause_s):
    reading.body_timeout_s = 0.5

    async def slowly():
        yield part("file", bytes(100_000), file_name="a")
        for _ in range(2 if pause_s < 1 else 1):
            await asyncio.sleep(pause_s)
            yield part(f"b{time.monotonic_ns()}", b"1")
        yield END

    started = time.monotonic()
    answer = await reading.post(slowly())
    assert answer.status == (200 if pause_s < 1 else 400)
    if pause_s > 1:
        assert "the body stalled" in answer.message
        assert time.monotonic() - started < 10
    assert left(reading) == []


async def test_a_body_that_drips_for_ever_is_400_all_the_same(reading):
    reading.body_timeout_s = 0.5

    async def dripping():
        yield part("file", b"", file_name="a")[:-2]
        for _ in range(300):
            await asyncio.sleep(0.1)
            yield b"x"

    started = time.monotonic()
    answer = await reading.post(dripping())
    assert answer.status == 400
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("beginning", [part("file", b"", file_name="a")[:-2], b"", part("a", b"1") + END])
async def test_too_much_is_refused_while_it_comes_whatever_it_is(reading, beginning):
    sent = 0

    async def endless():
        nonlocal sent
        yield beginning
        for _ in range(1000):
            sent += MIB
            yield bytes(MIB)

    with contextlib.suppress(aiohttp.ClientError, ConnectionError):
        answer = await reading.post(endless())
        assert "too large" in answer.message
    assert sent < 500 * MIB
    assert left(reading) == []


# Folders


@pytest.mark.slow
async def test_a_service_that_starts_removes_what_a_killed_one_left(start, tmp_path, tools):
    with (
        start(data=tmp_path, keys=["main"], workers=1) as first,
        start(data=tmp_path, keys=["main"], workers=1) as second,
    ):
        mine = list((tmp_path / "uploads").iterdir())
        assert len(mine) == 2
        for folder in mine:
            assert folder.stat().st_mode & 0o777 == 0o700
            (folder / "clip").write_bytes(b"1")
        workers = tools.worker_pids(first.pid)
        os.kill(first.pid, 9)
        # A worker that is forked from a test has the lock of its service, too.
        await tools.until(lambda: not any(map(tools.alive, [first.pid, *workers])))
        with start(data=tmp_path, keys=["main"], workers=1):
            assert len([folder for folder in mine if (folder / "clip").exists()]) == 1, "that of the living"
        assert second.is_running
    assert list((tmp_path / "uploads").rglob("clip")) == []


# Memory


async def test_a_large_upload_does_not_grow_the_service(service, session, tmp_path):
    size = 60 * MIB
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(size)

    async def upload():
        data = aiohttp.FormData()
        data.add_field("voice_id", "moody")
        with path.open("rb") as file:
            data.add_field("file", file, filename="a.bin")
            async with session.post(
                f"{service.url}/v1/voice-changer/convert", data=data, headers={"api-key": "main"}
            ) as answer:
                assert answer.status == 400, "zeros are no audio"
                return (await answer.json())["error_message"]

    await upload()
    process = psutil.Process(service.pid)
    before = process.memory_info().rss
    peak = before
    uploading = asyncio.ensure_future(upload())
    while not uploading.done():
        peak = max(peak, process.memory_info().rss)
        await asyncio.sleep(0.005)
    assert uploading.result()
    assert peak - before < 8 * MIB
