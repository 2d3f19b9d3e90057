"""A pack of texts goes in one call: what is wrong with one text costs that text, and each is paid once."""

import json
import subprocess
import sys
import time

import pandas as pd
import pytest
from accounts import statuses, times_billed

import speechframe as spf
from forked import Program


@pytest.fixture(scope="module")
def plain(services):
    """A service that promises nothing about repeats."""
    return services(idempotent=False, limits_page=False)


@pytest.fixture
def translate(tmp_path):
    def call(service, texts, **options):
        table = pd.DataFrame({"id": [f"t{number}" for number in range(len(texts))], "text": texts})
        fixed = {"targets": ["pt-BR"], "id": "id", "run_dir": tmp_path / "run", "progress": False}
        return spf.translate(table, service=service.settings, **fixed | options)

    return call


def turned(text):
    """Return a text as FaultyService translates it."""
    words = "".join(letter if letter.isalnum() else f"\0{letter}\0" for letter in text).split("\0")
    return "".join(word[::-1] if word.isalpha() else word for word in words) + " (pt-BR)"


def check_texts(run):
    """See that every translated row has its own translation."""
    for row in run.to_pandas().itertuples():
        if row.status == "done":
            assert row.translated_text == turned(row.text)


def test_texts_go_in_packs_and_each_is_paid_once(plain, translate, lines):
    texts = lines(40) + lines(5)
    before = plain.books().requests
    run = translate(plain, texts)
    assert statuses(run) == ["done"] * 45
    check_texts(run)
    assert plain.books().requests - before < 10
    assert {times_billed(plain, text) for text in texts} == {1}
    assert run.ledger["credits"].sum() == sum(map(len, set(texts)))
    assert translate(plain, texts).estimate.calls == 0


PROGRAM = Program("""
import sys
import speechframe as spf
url, key, folder, *texts = sys.argv[1:]
spf.translate(texts, targets=["pt-BR"], run_dir=folder, progress=False,
              service=spf.Settings(base_url=url, api_key=key, profile="faulty-0"))
""")


def test_a_pack_in_flight_when_its_process_dies_is_not_paid_again(services, lines, tmp_path):
    service, texts = services(idempotent=False, limits_page=False, latency=1), lines(6)
    key = service.api_key.get_secret_value()
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, service.url, key, tmp_path / "run", *texts])
    while not service.books().in_flight:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait(60)
    while service.books().in_flight:
        time.sleep(0.05)
    service.set(latency=0)
    run = spf.resume(tmp_path / "run", service=service.settings, progress=False)
    assert statuses(run) == ["charged_unknown"] * 6
    assert {times_billed(service, text) for text in texts} == {1}
    run = spf.resume(run, on_unknown="retry", service=service.settings, progress=False)
    assert statuses(run) == ["done"] * 6
    check_texts(run)
    assert {times_billed(service, text) for text in texts} == {2}


@pytest.mark.parametrize("status", [
    "400",
    "413",
    "422",
])  # fmt: skip
def test_a_refused_pack_is_split_until_only_its_bad_text_fails(plain, translate, lines, status):
    texts = lines(20)
    plain.set(scripts={texts[7]: [status, "..."]})
    run = translate(plain, texts)
    found = statuses(run)
    assert found[7] == "failed"
    assert found[:7] + found[8:] == ["done"] * 19
    check_texts(run)
    assert {times_billed(plain, text) for text in texts if text != texts[7]} == {1}
    assert times_billed(plain, texts[7]) == 0


@pytest.mark.parametrize("odd", [
    {"translated_text": "null"},
    {"translated_text": json.dumps("x" * 100_000)},
    {"source_text": json.dumps("Something else was translated here.")},
])  # fmt: skip
@pytest.mark.sampled(1)
def test_a_bad_entry_costs_its_text_only(plain, translate, lines, odd):
    texts = lines(12)
    plain.set(odd={texts[5]: odd})
    run = translate(plain, texts)
    found = statuses(run)
    assert found[5] not in {"done", "pending"}
    assert found[:5] + found[6:] == ["done"] * 11
    check_texts(run)
    assert {times_billed(plain, text) for text in texts} == {1}
    spf.resume(run, service=plain.settings, progress=False)
    assert {times_billed(plain, text) for text in texts} == {1}


def test_an_entry_whose_source_is_spelled_otherwise_is_taken(plain, translate, lines):
    texts = [f'{line} "quoted"' for line in lines(5)]
    plain.set(
        odd={
            texts[2]: {
                "source_text": json.dumps(texts[2].replace(' "', "  \u201c", 1).replace('"', "\u201d"))
            }
        }
    )
    run = translate(plain, texts)
    assert statuses(run) == ["done"] * 5
    assert {times_billed(plain, text) for text in texts} == {1}


def test_entries_in_another_order_go_to_the_texts_that_they_name(plain, translate, lines):
    texts = lines(6)
    others = {texts[2]: texts[4], texts[4]: texts[2]}
    plain.set(
        odd={
            text: {"source_text": json.dumps(other), "translated_text": json.dumps(turned(other))}
            for text, other in others.items()
        }
    )
    run = translate(plain, texts)
    assert statuses(run) == ["done"] * 6
    check_texts(run)
    assert {times_billed(plain, text) for text in texts} == {1}


def test_a_doubtful_translation_is_suspect(plain, translate, lines):
    texts = [*lines(2), "Integer", "OK, 12 km", "Berlin"]
    plain.set(odd={text: {"translated_text": json.dumps(text)} for text in texts[1:]})
    # The words of a glossary are translated as the user says.
    run = translate(plain, texts, glossary={"Berlin": "Berlin"})
    assert statuses(run) == ["done", "suspect", "suspect", "done", "done"]


def test_a_budget_holds_for_packs(plain, translate, lines):
    texts = lines(120)
    budget = sum(map(len, texts)) // 2
    run = translate(plain, texts, max_credits=budget)
    assert run.stopped_because == "budget"
    assert (
        run.ledger["credits"].sum() == sum(len(text) * times_billed(plain, text) for text in texts) <= budget
    )
    run = spf.resume(run, max_credits=2 * budget + 1000, service=plain.settings, progress=False)
    assert statuses(run) == ["done"] * 120
    assert {times_billed(plain, text) for text in texts} == {1}
