"""Whatever a server answers to some rows: each has its status, error and charge, and its neighbours their audio."""

import json
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr
from tenacity import wait_random_exponential

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

import odd_answers
from odd_answers import HASTY, KEY, RATE_HZ, REFUSED, SILENT, UNUSABLE, USED, audio_of

import speechframe as spf
from peak import forget_peak, peak_kb
from speechframe.old_batch import retry
from speechframe.settings import Settings

ODD_ROWS, ROWS = 4, 12
LEFT_OUT = (HASTY, "balance", "warning")
KINDS = [kind for kind in (*UNUSABLE, *SILENT, *REFUSED, *USED) if not kind.name.startswith(LEFT_OUT)]
GROUPS = [KINDS[at : at + ODD_ROWS] for at in range(0, len(KINDS), ODD_ROWS)]


@pytest.fixture
def service():
    made = odd_answers.Service()
    made.up()
    odd_answers.install_files(made)
    yield made
    made.down()


@pytest.fixture
def settings(service):
    return Settings(api_key=SecretStr(KEY), base_url=service.url, profile="odd", trust_env=False)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Waits between attempts are short."""
    monkeypatch.setattr(retry, "_backoff", wait_random_exponential(multiplier=0.01, max=0.05))


def texts_of(group):
    """Odd rows between good ones."""
    texts = [f"Row {n} is spoken as it stands." for n in range(ROWS)]
    return texts, {texts[1 + 3 * n]: kind for n, kind in enumerate(group)}


def generate(service, settings, folder, texts, **options):
    given = {
        "voice": "en-US-nora", "sample_rate": RATE_HZ, "service": settings, "run_dir": folder / "run", "progress": False,
        "max_concurrency": 4, "timeout_s": 4, "patience_s": 20, "max_attempts": 1, "truth_checks": False, **options,
    }  # fmt: skip
    return spf.generate(texts, **given)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: ", ".join(kind.name for kind in group))
def test_an_odd_row_ends_alone(service, settings, tmp_path, group):
    texts, odd = texts_of(group)
    service.odd = {text: kind.step for text, kind in odd.items()}
    started_s = time.monotonic()
    run = generate(service, settings, tmp_path, texts)
    assert time.monotonic() - started_s < 60
    assert (run.status, run.stopped_because) == ("finished", None)

    rows = run.to_pandas(audio=True).set_index("text")
    ledger = run.ledger.set_index("request_key")
    for text in texts:
        row, kind = rows.loc[text], odd.get(text)
        status = "done" if kind is None else kind.status
        assert row["status"] == status, (text, kind, row["error_message"])
        entry = ledger.loc[row["request_key"]]
        charge = "computed" if kind is None else kind.charge
        assert entry["credits_basis"] == charge, (kind, entry)
        assert (entry["credits"] > 0) == (charge != "none")
        if status == "done":
            assert row["audio"]["bytes"] == audio_of(text)
        else:
            assert row["audio"] is None or row["audio"]["bytes"] is None
            assert kind.words in row["error_message"]
            assert row["error_message"].isprintable()
            assert len(row["error_message"]) < 2000
    # One attempt a row, and the failed ones are told apart.
    assert len(ledger) == ROWS
    left = run.failed
    assert set(left["text"]) == {text for text, kind in odd.items() if kind.error is not None}
    assert not run._folder.verify()
    for part in run.path.glob("parts/*.parquet"):
        pq.read_table(part).validate(full=True)
    check_secrets(service, run.path)


def check_secrets(service, folder):
    """Only the service heard text and key, and only on its own path; the folder knows no key."""
    for data in service.strange:
        assert KEY.encode() not in data
        assert b"Row" not in data
    assert service.strange == []
    for method, path, head, content in service.seen:
        assert not content if method == "GET" else path == "/v1/speech/generate"
        assert KEY not in head or path.partition("?")[0] in {
            "/v1/speech/generate",
            "/v1/speech/voices",
            "/v1/limits",
        }
    for path in folder.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


def test_a_page_of_limits_may_hold_anything_first_and_later(service, settings, tmp_path, monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    texts, _ = texts_of([])
    huge = {"remaining_characters": 10**400, "idempotency_seconds": 10**400, "max_text_characters": 10**400}
    page = {"service": "speechframe", "identity": f"<{KEY}>", "identities": {"generate": KEY}, **huge}
    # Enough for the price, and too little to do without asking once more.
    pages = iter([{**page, "remaining_characters": sum(map(len, texts)) + 1}])

    def said(connection, path):
        connection.write(
            odd_answers.http(200, json.dumps({"idempotency": True, **next(pages, page)}).encode())
        )

    service.files["/v1/limits"] = said
    for folder in (tmp_path / "first", tmp_path / "later"):
        run = generate(service, settings, folder, texts)
        assert (run.status, run.stopped_because) == ("finished", None)
        assert set(run.to_pandas()["status"]) == {"done"}
    check_secrets(service, tmp_path)


def test_what_cannot_be_used_is_asked_for_again_and_every_attempt_is_in_the_ledger(
    service, settings, tmp_path
):
    texts, odd = texts_of(
        [k for k in UNUSABLE if k.name in {"nothing", "truncated", "no audio at all", "gone"}]
    )
    kinds = {text: iter([kind.step]) for text, kind in odd.items()}

    def once(text):
        def step(connection, sent):
            first = next(kinds[text], None)
            return connection.write(odd_answers.good(sent)) if first is None else first(connection, sent)

        return step

    service.odd = {text: once(text) for text in odd}
    run = generate(service, settings, tmp_path, texts, max_attempts=3)
    frame = run.to_pandas(audio=True)
    assert set(frame["status"]) == {"done"}
    for row in frame.to_dict("records"):
        assert row["audio"]["bytes"] == audio_of(row["text"])
    counted = run.ledger["request_key"].value_counts()
    for row in frame.to_dict("records"):
        assert counted[row["request_key"]] == (2 if row["text"] in odd else 1)
    assert set(run.ledger["credits_basis"]) == {"computed"}


@pytest.mark.slow
def test_memory_does_not_follow_what_a_server_sends(service, settings, tmp_path):
    """Every row is answered with as many bytes as are taken; the run holds a few of them at a time."""
    endless = next(kind for kind in UNUSABLE if kind.name == "endless")
    texts = [f"Row {n} is endless." for n in range(ROWS)]
    generate(service, settings, tmp_path / "warm", texts[:2])
    service.odd = dict.fromkeys(texts, endless.step)
    forget_peak()
    before = peak_kb()
    run = generate(service, settings, tmp_path, texts, timeout_s=20, max_concurrency=4)
    assert set(run.to_pandas()["status"]) == {"failed"}
    # In kilobytes: four in flight, each joined once, and the server's own in the same process.
    assert peak_kb() - before < 400_000
