"""Dubs: a job is started once whatever happens, a locale that fails takes no other with it, keys show nowhere."""

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile as sf
from dub_service import DUB, DUB_KEY, KEY, SECONDS, DubService, sound
from pydantic import SecretStr
from tests.dubbing.films import film, without_time_scale

import speechframe as spf
from served import Served
from speechframe.backends.dub_job import Dub, _choose_suffix, list_jobs
from speechframe.client import SyncClient
from speechframe.local.start import local_service
from speechframe.spec.dubbing import DownloadDetail
from speechframe.widgets.dub_player import DubPlayer, list_dubs

TARGETS = ["pt-BR", "fr-FR"]
SECRET = "secret-of-the-webhooks"


@pytest.fixture
def serving():
    """Start services; each ends with its test."""
    with contextlib.ExitStack() as stack:

        def start(**knobs):
            service = DubService(**knobs)
            service.up()
            stack.callback(service.down)
            return service

        yield start


@pytest.fixture(scope="module")
def medium(tmp_path_factory):
    path = tmp_path_factory.mktemp("media") / "intro.wav"
    sf.write(path, np.zeros(int(SECONDS * 8000)), 8000)
    return path


@pytest.fixture
def dub(medium, tmp_path):
    def run(service, table=None, **options):
        table = [str(medium)] if table is None else table
        fixed = {"service": service.settings, "run_dir": tmp_path / "run", "progress": False}
        if "project" not in options:
            fixed["targets"] = TARGETS
        return spf.dub(table, **fixed | options)

    return run


def command(service, *words, **more):
    settings = service.settings
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPEECHFRAME_")},
        "SPEECHFRAME_BASE_URL": settings.base_url,
        "SPEECHFRAME_API_KEY": settings.api_key.get_secret_value(),
        "SPEECHFRAME_DUB_API_KEY": (settings.dub_api_key or settings.api_key).get_secret_value(),
        "SPEECHFRAME_LEDGER": os.environ["SPEECHFRAME_LEDGER"],
        **more,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "speechframe", *map(str, words)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def killed_at(service, call, *words):
    """Run a command until the service is asked for `call`, which it does not answer, and kill it there."""
    before = len(service.seen)
    service.held = {call}
    process = command(service, *words)
    service.until(lambda one: call in {name for name, _ in one.seen[before:]})
    time.sleep(0.05)  # nothing waits for an answer: what was noted is on disk
    process.kill()
    process.communicate()
    service.held = set()


def ended(process, code=0):
    said, _ = process.communicate(timeout=60)
    assert process.returncode == code, said
    return said


def is_delivered(run):
    for row in run.to_pandas().itertuples():
        assert row.status == "done"
        assert (run.path / row.dub_path).read_bytes().startswith(DUB)
        assert (run.path / row.srt_path).is_file()
    assert sorted(path.name for path in (run.path / "dubs").iterdir()) == [
        "0.fr-FR.mp4", "0.fr-FR.srt", "0.pt-BR.mp4", "0.pt-BR.srt",
    ]  # fmt: skip
    assert run.ledger["credits"].sum() == 2 * SECONDS


def test_a_client_that_is_killed_at_each_step_starts_one_job_and_delivers_it(serving, medium, tmp_path):
    service, folder = serving(is_ours=True), tmp_path / "run"
    first = ["dub", medium, "--targets", "pt-BR,fr-FR", "--run-dir", folder]
    killed_at(service, "create", *first)
    killed_at(service, "file", "resume", folder)
    run = spf.resume(folder, service=service.settings, progress=False)
    assert list(service.jobs) == ["job-1"]
    is_delivered(run)


def test_without_the_promise_a_job_that_may_have_been_started_is_not_started_again(serving, medium, tmp_path):
    service, folder = serving(), tmp_path / "run"
    killed_at(service, "create", "dub", medium, "--target", "pt-BR", "--run-dir", folder)
    run = spf.resume(folder, service=service.settings, progress=False)
    assert (run.statuses(), len(service.jobs)) == (["charged_unknown"], 1)
    # Once its id is known, it is gone on with on any service.
    again = tmp_path / "again"
    killed_at(service, "status", "dub", medium, "--target", "pt-BR", "--target", "fr-FR", "--run-dir", again)
    run = spf.resume(again, service=service.settings, progress=False)
    assert len(service.jobs) == 2
    is_delivered(run)


def test_a_locale_that_failed_is_a_failed_row_and_alone_is_tried_again(serving, dub):
    words = "LANGUAGE_NOT_SUPPORTED: there is no voice of fr-FR"
    service = serving(statuses=["IN_PROGRESS", "PARTIALLY_COMPLETED"], failed={"fr_FR": words})
    run = dub(service)
    frame = run.to_pandas().set_index("locale")
    assert dict(frame["status"]) == {"pt-BR": "done", "fr-FR": "failed"}
    assert frame["error_code"]["fr-FR"] == "LANGUAGE_NOT_SUPPORTED"
    assert frame["error_message"]["fr-FR"] == "there is no voice of fr-FR"
    assert frame["warnings"]["pt-BR"] == ["the moon is full"]
    assert run.ledger["credits"].sum() == SECONDS
    service.failed.clear()
    run = spf.resume(run, service=service.settings, progress=False)
    assert [sorted(job.locales) for job in service.jobs.values()] == [["fr_FR", "pt_BR"], ["fr_FR"]]
    is_delivered(run)
    assert dub(service).estimate.calls == 0


def test_a_status_that_nobody_knows_does_not_end_the_wait_and_no_time_limit_ends_a_job(serving, dub):
    service = serving(statuses=["ABOUT_TO_BEGIN", "IN_PROGRESS", "BEING_POLISHED", "COMPLETED"])
    run = dub(service, timeout_s=0.5, patience_s=0.5)
    assert service.jobs["job-1"].asked == 4
    is_delivered(run)


def test_what_a_service_bills_otherwise_is_what_it_cost(serving, dub):
    run = dub(serving(credits_used=7))
    assert sorted(run.ledger["credits_basis"]) == ["reported", "reported"]
    assert run.ledger["credits"].sum() == 7


def test_a_service_that_can_refuse_a_dearer_job_is_sent_what_was_reserved(serving, dub, tmp_path):
    service = serving(is_ours=True, limits_price=True)
    dub(service)
    assert ("max_credits", str(2 * SECONDS)) in service.jobs["job-1"].fields
    other = serving(is_ours=True)
    dub(other, run_dir=tmp_path / "other")
    assert "max_credits" not in dict(other.jobs["job-1"].fields)
    service.refused = "the job costs 1,873 credits; allowed by max_credits are 4"
    run = dub(service, run_dir=tmp_path / "dear")
    assert (run.statuses(), run.ledger["credits"].sum()) == (["failed", "failed"], 0)
    assert service.refused in run.failed["error_message"][0]


def test_a_service_that_bills_more_is_booked_as_billed_and_the_run_stops_at_its_budget(
    serving, dub, tmp_path
):
    service = serving(credits_used=1873)
    media = distinct_media(tmp_path, 6)
    run = dub(service, media, targets=["pt-BR"], max_credits=100, max_concurrency=1)
    frame = run.to_pandas()
    # The next job is sent before the bill of the one before is booked.
    jobs = len(service.jobs)
    assert (jobs <= 2, run.stopped_because) == (True, "budget")
    assert list(frame["status"]) == ["done"] * jobs + ["pending"] * (6 - jobs)
    assert (run.ledger["credits"].sum(), frame["audio_seconds"][0]) == (jobs * 1873, 1873)
    assert "the service reports a cost of 1,873 credits, expected 2" in frame["warnings"][0]


def distinct_media(folder, count):
    paths = [folder / f"medium-{number}.wav" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(sound(SECONDS) + bytes([number]))
    return [str(path) for path in paths]


IMPOSSIBLE = [-1_000_000, 2**63 - 1, 10**30, float("nan")]


@pytest.mark.parametrize("said", IMPOSSIBLE)
def test_an_impossible_amount_voids_no_budget_and_the_computed_price_counts(serving, dub, tmp_path, said):
    service = serving(credits_used=said)
    run = dub(service, distinct_media(tmp_path, 6), targets=["pt-BR"], max_credits=5)
    assert (len(service.jobs), run.stopped_because) == (2, "budget")
    assert list(run.ledger["credits"]) == [SECONDS, SECONDS]
    assert set(run.ledger["credits_basis"]) == {"computed"}
    frame = run.to_pandas()
    assert all(
        "which is not a possible price" in "".join(told)
        for told in frame["warnings"][frame["status"] == "done"]
    )


@pytest.mark.parametrize("said", [-1_000_000, 2**63 - 1, 10**12])
def test_a_run_that_has_booked_an_impossible_amount_is_gone_on_with(
    serving, dub, tmp_path, monkeypatch, said
):
    service = serving(credits_used=said)
    with monkeypatch.context() as earlier, contextlib.suppress(TypeError):
        earlier.setattr("speechframe.verbs.dub.read_amount", lambda value: value)
        dub(service, distinct_media(tmp_path, 6)[:1], targets=["pt-BR"])
    service.credits_used = None
    run = dub(service, distinct_media(tmp_path, 6), targets=["pt-BR"], max_credits=5)
    assert run.stats["done"] == len(service.jobs) == 2
    assert run.stopped_because == "budget"


@pytest.mark.parametrize("code", ["SPEECH_NOT_PRESENT", "CREDITS_EXHAUSTED"])
def test_credits_of_a_job_without_any_dub_are_in_the_ledger(serving, dub, code):
    run = dub(serving(statuses=["FAILED"], failure_code=code, credits_used=3))
    assert run.statuses() == ["failed", "failed"]
    assert (run.ledger["credits"].sum(), run.to_pandas()["credits"].sum()) == (3, 3)
    assert set(run.ledger["credits_basis"]) == {"reported"}


def test_a_failed_locale_costs_nothing_and_the_others_all_of_the_job(serving, dub):
    service = serving(
        statuses=["PARTIALLY_COMPLETED"], failed={"fr_FR": "SERVER_ERROR: crashed"}, credits_used=9
    )
    run = dub(service)
    credits = dict(zip(run.to_pandas()["locale"], run.to_pandas()["credits"], strict=True))
    assert credits == {"pt-BR": 9, "fr-FR": 0}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "the file is empty"),
        (b"<!DOCTYPE html><title>Sign in</title>" * 50, "no audio that can be read"),
        (DUB[: len(DUB) // 2], "truncated"),
    ],
)
def test_what_comes_instead_of_a_dub_is_no_dub_and_the_job_is_asked_again(serving, dub, body, words):
    service = serving(files={".mp4": (200, body)}, credits_used=None)
    run = dub(service)
    assert run.statuses() == ["charged_unknown", "charged_unknown"]
    assert all(words in message for message in run.failed["error_message"])
    assert run.ledger["credits"].sum() == 2 * SECONDS
    assert not any((run.path / "dubs").iterdir())
    service.files.clear()
    is_delivered(spf.resume(run, service=service.settings, progress=False))
    assert len(service.jobs) == 1


def test_a_bill_above_the_plan_is_booked_once_though_its_files_come_later(serving, dub):
    service = serving(files={".mp4": (200, b"")}, credits_used=70)
    run = dub(service)
    assert (run.stats["charged_unknown"], run.ledger["credits"].sum()) == (2, 70)
    service.files.clear()
    run = spf.resume(run, service=service.settings, progress=False)
    assert (run.statuses(), run.ledger["credits"].sum()) == (["done", "done"], 70)
    assert list(run.to_pandas()["credits"]) == [35, 35]


def test_a_dub_of_another_length_is_suspect(serving, dub):
    run = dub(serving(files={".mp4": (200, sound(5.0))}))
    assert run.statuses() == ["suspect", "suspect"]
    assert "the medium lasts 2.00 s, but its dub 5.00 s" in run.to_pandas()["error_message"][0]


@pytest.mark.parametrize("answer", [(404, b"gone"), (200, b""), (200, b"<html>"), (200, b"\xff\xfe-->")])
def test_subtitles_that_cannot_be_had_leave_a_paid_dub_where_it_is(serving, dub, answer):
    run = dub(serving(files={".srt": answer}))
    frame = run.to_pandas()
    assert run.statuses() == ["done", "done"]
    assert frame["srt_path"].isna().all()
    assert all((run.path / path).is_file() for path in frame["dub_path"])
    assert "the SRT subtitles: " in "".join(frame["warnings"][0])


def test_subtitles_that_are_odd_are_kept_and_every_dub_is_seen(serving, dub):
    odd = b"1\n00:00:02,000 --> 00:00:01,000\nBackwards.\n"
    run = dub(serving(files={".srt": (200, odd)}))
    assert "kept unchanged" in "".join(run.to_pandas()["warnings"][0])
    seen = list_dubs(run)
    assert [one.path.is_file() for one in seen] == [True, True]
    assert {Path(one.label).suffix for one in seen} == {".wav"}, "the label is the name of the file"
    assert "ends before it begins" in seen[0].note


def forged(run, **values):
    """Change what a run's files say of a dub, as whoever hands a run over can; return its place."""
    (path,) = (run.path / "parts").iterdir()
    table = pq.read_table(path)
    for column, value in values.items():
        changed = [value, *table.column(column).to_pylist()[1:]]
        place = table.schema.get_field_index(column)
        table = table.set_column(place, table.schema.field(column), pa.array(changed))
    pq.write_table(table, path)
    return list(run.to_pandas()["request_key"]).index(table.column("request_key")[0].as_py())


def test_a_run_of_somebody_else_reads_and_writes_nothing_outside_its_folder(serving, dub, tmp_path):
    service = serving(is_ours=True)
    run = dub(service)
    secret = tmp_path / "secret.txt"
    secret.write_text("1\n00:00:00,000 --> 00:00:01,000\nThe secret.\n")
    (run.path / "dubs" / "link.wav").symlink_to(secret)
    (run.path / "link").symlink_to(tmp_path)
    before, names = secret.read_bytes(), {*tmp_path.iterdir()}
    # Of a version above the first all files are fetched: a call that was cut off may not have fetched them.
    said = {"utterance_id": 1, "start_ms": 0, "end_ms": 1, "dub_start_ms": 0, "dub_end_ms": 1, "speed": 1.0}
    said |= {"speaker": "A", "source_text": "Hi", "text": "Oi", "voice_id": "v", "fit": "FITS"}
    service.said = {"version": 2, "overlap": 0.0, "cues_over": 0, "warnings": [], "utterances": [said]}
    good = run.to_pandas().set_index("locale")
    for column in ("dub_path", "srt_path"):
        for way in (
            "../secret.txt",
            "dubs/../../secret.txt",
            str(secret),
            "dubs/link.wav",
            "link/secret.txt",
        ):
            place = forged(run, **{column: way})
            run = spf.open_run(run.path)
            row = run.to_pandas().iloc[place]
            shown = list_dubs(run)
            assert "The secret" not in DubPlayer(shown).to_table()
            assert (shown[place].path is None) == (column == "dub_path")
            assert shown[place].problem or shown[place].note
            correction = {"row_id": row["row_id"], "utterance_id": 1, "text": "Oi"}
            with pytest.raises(spf.StoreError, match=r"leads out of the run's folder|is a link"):
                spf.correct(run, [correction], service=service.settings)
            forged(run, **{column: good[column][row["locale"]]})
    run = spf.open_run(run.path)
    spf.correct(run, [correction], service=service.settings)
    assert (secret.read_bytes(), {*tmp_path.iterdir()}) == (before, names)


def test_a_begun_credit_of_the_service_is_no_other_price_than_was_said(serving, dub):
    run = dub(serving(credits_used=5))
    assert run.ledger["credits"].sum() == run.estimate.credits == 2 * SECONDS


def test_a_job_without_credits_stops_the_run_and_is_started_anew_later(serving, dub):
    service = serving(statuses=["FAILED"], failure_code="INSUFFICIENT_CREDITS")
    run = dub(service)
    assert (run.stopped_because, run.statuses()) == ("quota", ["pending", "pending"])
    assert run.ledger["credits"].sum() == 0
    service.statuses = ["COMPLETED"]
    is_delivered(spf.resume(run, service=service.settings, progress=False))


def test_a_medium_that_is_refused_is_sent_once_and_fails_in_all_locales(serving, dub):
    service = serving(refused="the medium has no audio")
    run = dub(service)
    assert run.statuses() == ["failed", "failed"]
    assert "no audio" in run.failed["error_message"].iloc[1]
    assert run.ledger["credits"].sum() == 0


def test_each_call_has_the_key_of_its_kind_and_none_is_in_a_file(serving, dub, tmp_path):
    service = serving(is_ours=True)
    run = dub(service, webhook_url="https://example.com/hook", webhook_secret=SECRET)
    assert dict(service.seen) == {"create": DUB_KEY, "status": DUB_KEY, "file": None}
    assert ("webhook_secret", SECRET) in service.jobs["job-1"].fields
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        assert not any(word.encode() in path.read_bytes() for word in (KEY, DUB_KEY, SECRET)), path
    with pytest.raises(spf.SettingsError, match="SPEECHFRAME_WEBHOOK_SECRET"):
        spf.resume(run, service=service.settings, progress=False)


def test_the_price_is_said_before_and_a_medium_of_unknown_length_is_no_surprise(
    serving, dub, medium, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # a run without `run_dir` lies in the working directory
    service = serving(credits_used=20)
    assert dub(service, dry_run=True, run_dir=None).estimate.credits == 2 * SECONDS
    url = "https://example.com/film.mp4"
    with pytest.raises(spf.InvalidRows, match=r"give its length as seconds="):
        dub(service, [url], max_credits=100)
    assert dub(service, [url], max_credits=100, seconds=10, dry_run=True, run_dir=None).estimate.credits == 20
    run = dub(service, [url], max_credits=100, seconds=10)
    assert ("file_url", url) in service.jobs["job-1"].fields
    assert run.ledger["credits"].sum() == 20


def test_what_cannot_be_measured_is_refused_at_planning_unless_its_length_is_given(
    serving, dub, tmp_path, monkeypatch
):
    service, medium = serving(), film(tmp_path / "film.mp4")
    measured = dub(service, [str(medium)], seconds=1, dry_run=True, run_dir=tmp_path / "a").estimate.credits
    assert measured == pytest.approx(2 * 3.0, abs=0.2), "a file is measured, whatever is said of it"
    broken = without_time_scale(film(tmp_path / "broken.mp4"))
    with pytest.raises(spf.InvalidRows, match=r"media: .* has no time scale, .*; allowed: .* seconds="):
        dub(service, [str(broken)])
    monkeypatch.setitem(sys.modules, "av", None)
    for given in (str(medium), medium.read_bytes()):
        with pytest.raises(spf.InvalidRows, match=r"pip install 'speechframe\[media\]'"):
            dub(service, {"media": [given]})
    assert service.jobs == {}
    assert dub(service, [str(medium)], seconds=1, dry_run=True, run_dir=tmp_path / "b").estimate.credits == 2


def test_figures_of_utterances_that_cannot_be_are_left_out_of_a_dub(serving, dub):
    said = {"version": 1, "overlap": 0.0, "cues_over": 10**30, "warnings": [], "utterances": []}
    run = dub(serving(is_ours=True, said=said))
    assert run.statuses() == ["done", "done"]
    assert "the fit of the dub could not be measured" in "".join(run.to_pandas()["warnings"][0])


def test_media_are_paths_and_bytes_and_ids_name_the_files(serving, dub, medium):
    service = serving()
    table = pd.DataFrame(
        {"id": ["a/b", "a b"], "media": [medium.read_bytes(), bytearray(medium.read_bytes() + b"\0")]}
    )
    run = dub(service, table, id="id", targets="fr_fr")
    assert list(run.to_pandas()["row_id"]) == ["a/b/fr-FR", "a b/fr-FR"]
    paths = list(run.to_pandas()["dub_path"])
    assert len({*paths}) == 2
    assert all(Path(path).parent == Path("dubs") and (run.path / path).is_file() for path in paths)
    # Two jobs are created at once: which of them comes first, nobody promises.
    assert sorted(job.size_bytes for job in service.jobs.values()) == [
        medium.stat().st_size,
        medium.stat().st_size + 1,
    ]


@pytest.mark.parametrize(
    ("name", "ending"), [("talk", ".wav"), ("Dr. Smith", ".wav"), ("talk.MP4", ".mp4"), ("talk.bin", ".wav")]
)
def test_a_dub_ends_as_its_medium_where_its_address_does_not_say(name, ending):
    dub = Dub("pt-BR", {"path": name, "media_type": "audio/wav"}, {}, None, False, [], None)
    assert _choose_suffix(dub, DownloadDetail(download_url="http://x/a?sig=1.mp3")) == ending


def test_a_project_says_the_locales_and_a_review_makes_one(serving, dub):
    service = serving(statuses=["IN_REVIEW"])
    run = dub(service, review=True)
    assert [(one["dubbing_type"], sorted(one["target_locales"])) for one in service.projects.values()] == [
        ("QA", ["fr_FR", "pt_BR"])
    ]
    assert set(run.to_pandas()["job_status"]) == {"COMPLETED"}
    service.projects["mine"] = {
        "project_id": "mine",
        "dubbing_type": "AUTOMATED",
        "target_locales": ["pt_BR"],
    }
    run = dub(service, project="mine", run_dir=run.path.with_name("other"))
    assert list(run.to_pandas()["row_id"]) == ["0/pt-BR"]
    assert ("project_id", "mine") in service.jobs["job-2"].fields


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"targets": None}, "targets: is missing, and so is project; allowed: exactly one of"),
        ({"project": "mine", "targets": TARGETS}, "targets: is given, and so is project"),
        ({"project": "mine", "review": True}, "review: is set by the project"),
        ({"project": "none"}, "project: is unknown .value none.; allowed: none yet, so create one"),
        ({"targets": ["tlh"]}, "is not a locale that this service dubs into .value tlh.; allowed: .*pt-BR"),
        ({"targets": ["nonsense words"]}, "targets: is not a language"),
        ({"targets": []}, "targets: is empty; allowed: at least one language"),
        ({"priority": "SOON"}, "priority: is not one of the allowed values .value 'SOON'.; allowed: .*HIGH"),
        ({"table": ["/no/such.mp4"]}, "media: /no/such.mp4 does not exist"),
        ({"table": [5.0]}, "media: media must be bytes, a path or a URL"),
        ({"table": {"media": [[1]]}}, "media: media must be bytes, a path or a URL"),
        ({"scripts": "no/such.srt"}, "scripts: works only with speechframe's own service"),
        ({"seconds": -1}, "seconds: is not a length .value -1.; allowed: a number above 0"),
        ({"original_gain_db": 5}, "original_gain_db: "),
        ({"webhook_url": "ftp://example.com", "dry_run": True}, "webhook_url: is not an address that can be"),
    ],
)
def test_what_is_wrong_is_said_with_what_is_allowed_and_nothing_is_sent(serving, dub, given, words):
    service = serving()
    with pytest.raises(spf.InvalidRows, match=words):
        dub(service, given.pop("table", None), **given)
    assert service.jobs == {}


def test_the_command_leaves_its_jobs_to_the_service_and_fetches_them_later(serving, medium, tmp_path):
    service, folder = serving(is_ours=True, statuses=["IN_PROGRESS"]), tmp_path / "run"
    words = ["dub", medium, "--targets", "pt-BR,fr-FR", "--run-dir", folder, "--no-wait"]
    assert "job-1" in ended(command(service, *words), 9)
    assert "IN_PROGRESS" in ended(command(service, "jobs", folder), 9)
    service.statuses, out = ["COMPLETED"], tmp_path / "out"
    said = ended(command(service, *words[:-1], "--out", out))
    assert {path.name for path in out.iterdir()} == {
        "intro.pt-BR.mp4", "intro.pt-BR.srt", "intro.fr-FR.mp4", "intro.fr-FR.srt",
    }  # fmt: skip
    assert "intro.pt-BR.mp4" in said
    assert len(service.jobs) == 1
    is_delivered(spf.open_run(folder))


SCRIPT = """1
00:00:00,200 --> 00:00:01,000
ANNA: Good morning.

2
00:00:01,100 --> 00:00:01,900
BEN: Good night.
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_on_the_local_service_a_killed_run_finds_its_job_and_its_receiver_is_told(medium, tmp_path):
    told = []
    receiver = Receiver(told.append)
    receiver.up()
    with local_service(workers=1, allow_private_urls=True) as service, SyncClient(service.settings) as client:
        folder, script = tmp_path / "run", tmp_path / "intro.srt"
        script.write_text(SCRIPT)
        words = ["--targets", "pt-BR,pt-PT", "--scripts", script, "--source-locale", "en-US"]
        words += ["--webhook-url", f"http://127.0.0.1:{receiver.port}/dubbed", "--run-dir", folder]
        process = command(service, "dub", medium, *words, SPEECHFRAME_WEBHOOK_SECRET=SECRET)
        while not (folder / "run.json").exists() or not list_jobs(spf.open_run(folder)):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.kill()
        process.communicate()
        (job_id,) = list_jobs(spf.open_run(folder))
        settings = replace(service.settings, webhook_secret=SecretStr(SECRET))
        run = spf.resume(folder, service=settings, progress=False)
        frame = run.to_pandas()
        assert set(frame["status"]) == {"done"}
        assert set(frame["job_id"]) == {job_id}
        assert set(frame["utterances"]) == {2}
        for row in frame.itertuples():
            assert sf.info(run.path / row.dub_path).duration == pytest.approx(SECONDS, abs=0.05)
            assert "Bom dia" in (run.path / row.vtt_path).read_text()
        used = client.limits()["dubbing"]
        assert used["quota_credits"] - used["remaining_credits"] == 2 * SECONDS
        assert run.ledger["credits"].sum() == 2 * SECONDS
        receiver.until(lambda _: told)
        assert (told[0].job_id, told[0].status) == (job_id, "COMPLETED")
        how = {"service": service.settings, "progress": False, "run_dir": tmp_path / "review"}
        run = spf.dub([str(medium)], targets=["pt-PT"], scripts=str(script), review=True, **how)
        said = spf.utterances(run, service=service.settings)
        said.loc[0, "text"] = "Boa tarde."
        again = spf.correct(run, said, service=service.settings)
        assert list(again["text"]) == list(said["text"])
        assert "Boa tarde." in (run.path / run.to_pandas()["vtt_path"][0]).read_text()
        # A call that was cut off behind its correction: the next one waits for it, and fetches what it made.
        (row,) = run.to_pandas().to_dict("records")
        client.dubbing.update_utterances(row["job_id"], "pt-PT", [{"utterance_id": 1, "text": "Boa noite."}])
        said.loc[0, "text"] = "Boa noite."
        assert spf.correct(run, said, service=service.settings)["text"][0] == "Boa noite."
        assert "Boa noite." in (run.path / row["vtt_path"]).read_text()
        with pytest.raises(spf.InvalidRows, match="names no utterance of this run"):
            spf.correct(
                run, [{"row_id": "0/pt-PT", "utterance_id": 9, "text": "Oi."}], service=service.settings
            )
    receiver.down()


class Receiver(Served):
    """An application that takes webhooks, on a port of its own."""

    port = 0

    def __init__(self, on_status):
        self._app = spf.receive_webhooks(on_status, secret=SECRET, path="/dubbed")

    def routes(self):
        return [
            (route.method, route.resource.canonical, route.handler) for route in self._app.router.routes()
        ]
