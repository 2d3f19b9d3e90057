"""How long an answer may be, and how little memory a long one takes: a word that costs little makes no gigabytes."""

import psutil
import pytest
from convert_lab import clip, convert, heard

from peak import forget_peak, peak_kb
from speechframe import generate
from speechframe.audio import codec

LARGEST = {"voiceId": "nora", "format": "WAV", "sampleRate": 48000, "channelType": "STEREO"}
FIVE_MINUTES = "a[pause 5s]" * 60


class Peak:
    """The most memory that a service and its workers take for something, above what they had, in MB."""

    def __init__(self, service):
        self.pids = [service.pid, *(child.pid for child in psutil.Process(service.pid).children())]

    def __enter__(self):
        for pid in self.pids:
            forget_peak(pid)
        self.before = [peak_kb(pid) for pid in self.pids]
        return self

    def __exit__(self, *_):
        grown = [peak_kb(pid) - before for pid, before in zip(self.pids, self.before, strict=True)]
        self.service_mb, self.worker_mb = grown[0] / 1024, max(grown[1:]) / 1024


@pytest.fixture(scope="module")
def alone(start):
    with start(workers=1) as service:
        yield service


async def test_a_word_is_made_a_minute_long_at_most_and_takes_no_gigabyte(alone, http_to):
    http = http_to(alone)
    await http.generate("Hello", **LARGEST)
    with Peak(alone) as peak:
        answer = await http.generate("Hello", **LARGEST, audioDuration=1800)
    assert answer.json["audioLengthInSeconds"] == 60.0
    words = "audioDuration of 1800 s was set to 60 s (allowed: 60 s, or 4 times the 0.5 s it takes by itself)"
    assert words in answer.json["warning"]
    assert words in answer.warnings
    audio = (await http.get(answer.json["audioFile"], key=None)).body
    assert codec.inspect_audio(audio).audio_seconds == 60.0
    assert peak.service_mb < 20
    assert peak.worker_mb < 100


async def test_what_lasts_longer_by_itself_may_be_made_four_times_as_long(http):
    text = "A sentence of a certain length, again. " * 7
    natural_s = (await http.generate(text, voiceId="nora")).json["audioLengthInSeconds"]
    assert 15 < natural_s < 40
    kept = await http.generate(text, voiceId="nora", audioDuration=int(3.9 * natural_s))
    assert kept.json["audioLengthInSeconds"] == int(3.9 * natural_s)
    assert "was set to" not in kept.json.get("warning", "")
    clamped = await http.generate(text, voiceId="nora", audioDuration=1000)
    assert clamped.json["audioLengthInSeconds"] == pytest.approx(4 * natural_s, abs=0.01)
    assert "audioDuration of 1000 s was set to" in clamped.json["warning"]


async def test_a_clip_is_made_a_minute_or_four_times_as_long_at_most(changing, http_to):
    http = http_to(changing, "main")
    for clip_s, longest_s in ((1.0, 60.0), (20.0, 80.0)):
        answer = await convert(http, clip(clip_s, 8000), audio_duration=1800, sample_rate=8000)
        assert (
            (await heard(http, answer)).audio_seconds == answer.json["audio_length_in_seconds"] == longest_s
        )
        assert f"audio_duration of 1800 s was set to {longest_s:g} s" in answer.json["warning"]


@pytest.mark.slow
@pytest.mark.parametrize("as_base64", [True, False])
async def test_a_long_answer_is_in_memory_in_no_process_as_a_whole(alone, http_to, as_base64):
    http = http_to(alone)
    await http.generate("Hello", **LARGEST)
    with Peak(alone) as peak:
        answer = await http.generate(FIVE_MINUTES, **LARGEST, encodeAsBase64=as_base64)
        size_bytes = 300 * 48_000 * 4
        if as_base64:
            assert len(answer.audio) > size_bytes
        else:
            assert len((await http.get(answer.json["audioFile"], key=None)).body) > size_bytes
    # The file has 55 MB, its Base64 75; the samples themselves, at the rate they are made at, 25.
    assert peak.service_mb < 20
    assert peak.worker_mb < 120


def test_a_row_whose_length_was_clamped_is_no_suspect(service, tmp_path):
    run = generate(
        ["Hello"], voice="nora", audio_duration=1800.0, sample_rate=8000, run_dir=tmp_path / "run", progress=False,
        service=service,
    )  # fmt: skip
    (row,) = run.to_pandas().to_dict("records")
    assert (row["status"], row["audio_seconds"]) == ("done", 60.0)
    assert any("was set to 60 s" in words for words in row["warnings"])
