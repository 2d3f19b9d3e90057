"""Answers are looked at before they count, and whatever a service says, nothing breaks but its own row."""

import contextlib
import subprocess
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

import pytest
from accounts import billed, check_audio, price, statuses, times_billed
from jupyter_client import KernelManager

import speechframe as spf
from forked import Program


@pytest.fixture(scope="module")
def service(services):
    return services(idempotent=False, limits_page=False)


@pytest.fixture
def odd_row(service, speak, lines):
    """Make a run of three rows, the middle one of which gets an odd answer."""

    def make(odd, **options):
        texts = lines(3)
        service.set(odd={texts[1]: odd})
        run = speak(service, texts, **options)
        assert statuses(run)[::2] == ["done", "done"]
        check_audio(run)
        return run, texts[1]

    return make


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        ({"wordDurations": '[{"word":"else","startMs":0,"endMs":300}]'}, "words"),
        ({"audioLengthInSeconds": "97.5"}, "length"),
    ],
)
def test_an_answer_that_cannot_be_true_is_suspect_and_its_audio_is_kept(odd_row, odd, code):
    run, _ = odd_row(odd)
    row = run.to_pandas(audio=True).iloc[1]
    assert row["status"] == "suspect"
    assert code in f"{row['error_code']} {row['error_message']}"
    assert row["audio"]["bytes"]


def test_audio_that_is_far_longer_than_its_text_needs_is_suspect(services, speak, lines):
    service = services(audio_bytes=300_000)
    run = speak(service, lines(2), format="WAV")
    assert statuses(run) == ["suspect"] * 2
    assert set(run.to_pandas()["error_code"]) == {"pace"}


def test_answers_are_taken_as_they_come_where_that_is_asked_for(odd_row):
    run, _ = odd_row({"wordDurations": '[{"word":"else","startMs":0,"endMs":300}]'}, truth_checks=False)
    assert statuses(run) == ["done"] * 3


def test_a_suspect_row_gets_another_take_and_no_more_than_asked(services, speak, lines):
    service = services()
    texts = lines(2)
    service.set(odd={texts[0]: {"audioLengthInSeconds": "97.5"}})
    run = speak(service, texts, max_retakes=2)
    assert statuses(run) == ["suspect", "done"]
    assert times_billed(service, texts[0]) == 3
    service.set(odd={})
    run = spf.resume(run, redo="suspect", service=service.settings, progress=False)
    assert statuses(run) == ["done", "done"]


@pytest.mark.parametrize("odd", [{"audioLengthInSeconds": value} for value in ("NaN", '"1.5"', "-1")])
@pytest.mark.sampled(1)
def test_good_audio_beside_an_odd_field_is_kept_with_a_warning(odd_row, odd):
    run, _text = odd_row(odd)
    row = run.to_pandas(audio=True).iloc[1]
    assert row["status"] == "done"
    assert row["audio"]["bytes"]
    assert row["audio_seconds"] > 0
    assert list(row["warnings"])


def test_an_answer_that_is_none_says_what_came(odd_row):
    run, _ = odd_row({"text/html": "<html><p>Please log in to the hotel's network"})
    message = run.to_pandas()["error_message"][1]
    assert all(words in message for words in ("200", "text/html", "<html><p>Please log in"))


def test_a_service_whose_answers_are_all_unusable_stops_the_run(services, speak, lines):
    service = services(faults={"no_audio": 1.0}, idempotent=False, limits_page=False)
    texts = lines(100)
    run = speak(service, texts, max_concurrency=2)
    assert run.status == "stopped"
    assert billed(service, texts) < price(texts) / 4


def test_links_that_are_dead_by_now_stop_no_resume(services, speak, lines, tmp_path):
    service = services(faults={"expired_url": 1.0}, idempotent=False, limits_page=False)
    run = speak(service, lines(30), run_dir=tmp_path / "run", max_concurrency=1, encode_as_base64=False)
    lost = statuses(run).count("charged_unknown")
    assert lost >= 10
    service.set(faults={})
    run = spf.resume(run, max_concurrency=1, service=service.settings)
    assert run.status == "finished"
    assert statuses(run).count("done") == 30 - lost


def test_an_answer_is_not_larger_than_its_text_can_need(services, speak, lines):
    service = services(audio_bytes=8 << 20, idempotent=False, limits_page=False)
    run = speak(service, lines(1), format="WAV")
    assert run.failed["status"].isin(["failed", "charged_unknown"]).all()
    assert len(run.failed) == 1
    assert "MB" in run.failed["error_message"].iloc[0]


def test_warnings_are_counted_where_people_look(odd_row):
    run, _ = odd_row({"warning": '"half of it was left out"'})
    assert "half of it was left out" in run.summary()
    assert list(run.warnings["row_id"].astype(str)) == ["1"]


@pytest.mark.quiet
@pytest.mark.slow
def test_time_limits_bound_the_download_too(odd_row, silent):
    began = time.monotonic()
    run, _ = odd_row({"encodedAudio": '""', "audioFile": f'"{silent}/clip"'}, timeout_s=1.0, patience_s=4.0)
    assert time.monotonic() - began < 10
    assert statuses(run)[1] != "done"


QUIET = """
import sys
import speechframe as spf
url, key, folder = sys.argv[1:]
spf.generate(["One line.", "Another line."], voice="en-US-nora", run_dir=folder, progress=False,
             service=spf.Settings(base_url=url, api_key=key))
"""


def test_nothing_is_said_on_the_error_stream_without_progress(service, tmp_path):
    command = [
        sys.executable,
        "-c",
        QUIET,
        service.url,
        service.api_key.get_secret_value(),
        str(tmp_path / "run"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stderr == ""


def test_tags_are_keys_and_values_in_the_ledger(service, speak, lines):
    run = speak(service, lines(2), tags={"team": "ads", "line": spf.col("text")})
    assert dict(run.ledger["tags"].iloc[0])["team"] == "ads"


def test_errors_of_the_user_s_making_show_their_message_in_a_notebook(service, speak, lines):
    with pytest.raises(spf.SpeechframeError) as caught:
        speak(service, lines(2), voice="en-US-noar")
    assert len(caught.value._render_traceback_()) < 12


@pytest.mark.parametrize(
    "ask", [lambda: spf.usage("nowhere"), lambda: spf.usage([]), lambda: spf.usage(every="1 day")]
)
def test_every_error_is_the_user_s_line_and_the_message_in_a_notebook(ask, monkeypatch):
    monkeypatch.delenv("SPEECHFRAME_DEBUG", raising=False)
    with pytest.raises(spf.SpeechframeError) as caught:
        ask()
    line, _, message, _, how = caught.value._render_traceback_()
    assert line.startswith("line ")
    assert "spf.usage(" in line
    assert message == f"{type(caught.value).__name__}: {caught.value}"
    assert "SPEECHFRAME_DEBUG=1" in how


WRONG_KEY = Program("""
import sys
import speechframe as spf
url, key, folder = sys.argv[1:]
def work():
    key_of_mine = spf.Settings(base_url=url, api_key=key)
    print(repr(key_of_mine), key_of_mine.api_key)
    spf.generate(["One line."], voice="en-US-nora", run_dir=folder, service=key_of_mine)
work()
""")


def test_keys_stand_in_no_file_trace_or_repr(services, speak, lines, tmp_path):
    key, wrong = "sk-right-and-secret", "sk-wrong-and-secret"
    service = services(keys=(key,))
    run = speak(service, lines(2))
    for path in run.path.rglob("*"):
        assert path.is_dir() or key.encode() not in path.read_bytes()
    command = [sys.executable, "-c", WRONG_KEY, service.url, wrong, str(tmp_path / "refused")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "PermissionDenied" in ended.stderr
    assert wrong not in ended.stdout + ended.stderr


SPOOL = """
import sys
import pandas, pyarrow.parquet
import speechframe as spf
from speechframe import api, aio
url, key, folder, rows = sys.argv[1:]
service = spf.Settings(base_url=url, api_key=key)

def table(count):
    return ({"text": f"Line number {row} goes on and on."} for row in range(count))

def peak_mb():
    # Not ru_maxrss: it begins at what the process that started this one takes.
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024

spf.generate(table(1000), voice="en-US-nora", run_dir=folder + "-1", dry_run=True, progress=False, service=service)
before = peak_mb()
spf.generate(table(int(rows)), voice="en-US-nora", run_dir=folder, dry_run=True, progress=False, service=service)
print(peak_mb() - before)
"""


@pytest.mark.slow
def test_a_generator_of_many_rows_is_spooled_batch_by_batch(service, tmp_path):
    key = service.api_key.get_secret_value()
    command = [sys.executable, "-c", SPOOL, service.url, key, str(tmp_path / "run"), "400000"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(ended.stdout) < 100


BOMB = Program("""
import sys
import speechframe as spf
from speechframe import aio, api
url, first, key, model, folder = sys.argv[1:]

def peak_mb():
    # Not ru_maxrss: it begins at what the process that started this one takes.
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024

options = {"voice": "en-US-nora", "model": model, "progress": False, "max_attempts": 2}
service = lambda at: spf.Settings(base_url=at, api_key=key, profile="faulty")
spf.generate(["One line."], run_dir=folder + "-1", service=service(first), **options)
before = peak_mb()
run = spf.generate(["One line."], run_dir=folder, service=service(url), **options)
print(peak_mb() - before)
print(len(run.failed))
""")
BOMB_MB = 150


@pytest.fixture(scope="module", params=["gzip", "deflate"])
def bomber(request, service):
    """Return the address of a service that refuses each call with few bytes that unpack to very many."""
    packer = zlib.compressobj(9, wbits=31 if request.param == "gzip" else 15)
    megabyte = b"{" + b" " * ((1 << 20) - 1)
    bomb = b"".join(packer.compress(megabyte) for _ in range(BOMB_MB)) + packer.flush()

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self):
            if "limits" in self.path:
                self.send_error(404)
                return
            asked = Request(service.url + self.path, headers=dict(self.headers))
            with urlopen(asked) as answer:
                body = answer.read()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(400)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Encoding", request.param)
            self.send_header("Content-Length", str(len(bomb)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(bomb)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("model", ["gen2", "falcon-2"])
@pytest.mark.sampled(1)
def test_the_body_of_a_refusal_is_not_unpacked_whole(service, bomber, tmp_path, model):
    began = time.monotonic()
    service.set(scripts={"One line.": ["400"]})
    key = service.api_key.get_secret_value()
    command = [sys.executable, "-c", BOMB, bomber, service.url, key, model, str(tmp_path / "run")]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    grown_mb, failed = ended.stdout.split()
    assert float(grown_mb) < 20
    assert failed == "1"
    assert time.monotonic() - began < 30


CELL = """
import speechframe as spf
ours = {{"service": spf.Settings(base_url={url!r}, api_key={key!r}), "progress": {progress!r}}}
options = {{"voice": "en-US-nora", "sample_rate": 8000, "run_dir": {folder!r}, **ours}}
lines = [f"Line {{number}} of a cell." for number in range(20)]
run = spf.resume(spf.generate(lines, dry_run=True, **options), **ours)
spf.generate(lines, **options)
live = spf.generate(lines, wait=False, **options | {{"run_dir": {folder!r} + "-2"}})
live.wait()
assert run.status == live.status == "finished"
"""


@pytest.fixture(scope="module")
def kernel():
    """A kernel as a notebook has one."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("progress", [True, False])
def test_a_notebook_shows_a_progress_line_or_nothing(kernel, service, tmp_path, progress):
    key = str(service.api_key.get_secret_value())
    cell = CELL.format(url=service.url, key=key, folder=str(tmp_path / "run"), progress=progress)
    outputs, asked = [], kernel.execute(cell)
    while (message := kernel.get_iopub_msg(timeout=60))["content"].get("execution_state") != "idle":
        outputs.append(message)
    assert message["parent_header"]["msg_id"] == asked
    errors = [message["content"] for message in outputs if message["msg_type"] == "error"]
    said = [message["content"] for message in outputs if message["msg_type"] == "stream"]
    assert not errors
    # The bar is a widget. A run that has nothing to do has no bar.
    done = "generate on 127.0.0.1: 20 rows, 20 done before, 0 calls, 0\ncredits\n"
    assert said == ([{"name": "stdout", "text": done}] if progress else [])
