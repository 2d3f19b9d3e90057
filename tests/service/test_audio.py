"""Links to audio: unguessable, for a day, with ranges; and nothing on disk when Base64 was asked for."""

import base64
import os
import time

import pytest
import yarl

from speechframe.local.service.books import shelf
from speechframe.local.service.books.database import FILE_NAME, connect, run_transaction
from speechframe.local.service.books.shelf import Shelf


async def test_a_link_is_opaque_and_needs_no_key(http):
    links = [(await http.generate(format="FLAC")).json["audioFile"] for _ in range(2)]
    assert links[0] != links[1]
    for link in links:
        assert link.startswith(f"{http.url}/v1/audio/")
        assert len(link.rpartition("/")[2]) == 32 + len(".flac")
        answer = await http.get(link, key=None)
        assert answer.body.startswith(b"fLaC")
        assert int(answer.headers["Cache-Control"].partition("max-age=")[2]) == pytest.approx(86_400, abs=60)


async def test_a_part_of_the_audio(http):
    link = (await http.generate()).json["audioFile"]
    whole = (await http.get(link)).body
    part = await http.get(link, headers={"Range": "bytes=10-19"})
    assert (part.status, part.body) == (206, whole[10:20])
    assert part.headers["Content-Range"] == f"bytes 10-19/{len(whole)}"
    head = await http.ask("HEAD", link)
    assert (head.status, head.headers["Content-Length"]) == (200, str(len(whole)))
    async with http.session.get(link, headers={"Range": "bytes=99999999-"}) as beyond:
        assert beyond.status == 416


async def test_nothing_else_can_be_fetched_or_listed(http, service):
    link = (await http.generate()).json["audioFile"]
    names = [
        "",
        "0" * 32 + ".wav",
        "../service.sqlite3",
        "..%2Fservice.sqlite3",
        "%2e%2e/key",
        ".%00",
        "x" * 5000,
    ]
    for url in (link.removesuffix(".wav"), *(f"{http.url}/v1/audio/{name}" for name in names)):
        assert (await http.get(str(yarl.URL(url, encoded=True)))).status == 404, url
    (service.data / shelf.FOLDER_NAME / link.rpartition("/")[2]).unlink()
    assert (await http.get(link)).status == 404


async def test_the_link_is_on_the_address_the_caller_used_if_it_is_one(http):
    address = f"localhost:{http.url.rpartition(':')[2]}"
    answer = await http.generate(headers={"Host": address})
    assert answer.json["audioFile"].startswith(f"http://{address}/v1/audio/")
    for host in ("evil\\host", "user@host"):
        answer = await http.generate(headers={"Host": host})
        assert answer.status != 200 or answer.json["audioFile"].startswith(f"{http.url}/v1/audio/")


@pytest.mark.rule("speech.base64-zero-retention")
async def test_base64_leaves_nothing_of_the_audio_on_disk(http, service, tools):
    def files():
        return {path: path.stat().st_size for path in tools.files_below(service.data / shelf.FOLDER_NAME)}

    before = files()
    answer = await http.generate("nothing of this stays", encodeAsBase64=True, format="PCM", sampleRate=48000)
    assert answer.json["audioFile"] == ""
    assert files() == before
    audio = answer.audio
    # Pieces of the middle, as bytes and as Base64 text, in every file of the folder.
    pieces = [audio[i : i + 48] for i in range(600, 6000, 600)]
    needles = [*pieces, *(base64.b64encode(piece) for piece in pieces), b"nothing of this stays"]
    assert len(set(pieces)) == len(pieces)
    # Clips of other tests lay there before, and one tone is much like another.
    for path in set(tools.files_below(service.data)) - set(before):
        data = path.read_bytes()
        assert not [needle for needle in needles if needle in data], path
    linked = await http.generate("nothing of this stays", format="PCM", sampleRate=48000)
    kept = service.data / shelf.FOLDER_NAME / linked.json["audioFile"].rpartition("/")[2]
    assert pieces[0] in kept.read_bytes(), "the search would have found it"


async def test_base64_that_is_not_read_yet_has_no_name_on_disk(http, service, tools):
    body = {"text": "x" * 4000, "voiceId": "moody", "encodeAsBase64": True, "sampleRate": 48000}
    headers = {"api-key": http.key}
    async with http.session.post(f"{http.url}/v1/speech/generate", json=body, headers=headers) as response:
        assert response.status == 200
        assert not tools.files_below(service.data / "uploads")
        assert len(await response.read()) == response.content_length > 5_000_000


@pytest.fixture
def opened(tmp_path):
    connection = connect(tmp_path / FILE_NAME)
    yield connection, Shelf(tmp_path, limit_bytes=1000)
    connection.close()


def put(connection, folder, size, data=b"x"):
    clip = folder.make_path("wav")
    clip.write_bytes(data)
    run_transaction(connection, lambda c: folder.put(c, clip, "audio/wav", size))
    return clip


def test_audio_ends_after_a_day(opened, monkeypatch):
    connection, folder = opened
    clip = put(connection, folder, 10)
    assert folder.find(connection, clip.name).path == clip
    late = time.time() + 86_401
    monkeypatch.setattr(shelf, "now", lambda: late)
    assert folder.find(connection, clip.name) is None, "also before it is tidied away"
    gone = run_transaction(connection, folder.remove_expired)
    assert gone == [clip.name]
    folder.remove(gone)
    assert not clip.exists()


def test_above_the_size_limit_the_oldest_go(opened, monkeypatch):
    connection, folder = opened
    clock = [time.time()]
    monkeypatch.setattr(shelf, "now", lambda: clock[0])
    clips = []
    for _ in range(5):
        clips.append(put(connection, folder, 300))
        clock[0] += 1
    gone = run_transaction(connection, folder.remove_expired)
    assert sorted(gone) == sorted(clip.name for clip in clips[:2])
    assert [bool(folder.find(connection, clip.name)) for clip in clips] == [False] * 2 + [True] * 3


def test_files_without_an_index_row_go_once_no_job_can_be_writing_them(opened):
    connection, folder = opened
    kept = put(connection, folder, 10)
    orphan, fresh = folder.make_path("wav"), folder.make_path("wav")
    for clip in (orphan, fresh):
        clip.write_bytes(b"x")
    for clip in (orphan, kept):
        os.utime(clip, (time.time() - 4000,) * 2)
    long_there = folder.list_old_files()
    gone = run_transaction(connection, lambda c: folder.remove_expired(c, long_there))
    assert gone == [orphan.name]
