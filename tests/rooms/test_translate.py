"""Translations: packs are split where they fail, doubtful answers are suspect, and each text is paid once."""

import pytest

import speechframe as spf
from speechframe.testing import FaultyService, tag_of

LINES = [f"Line {number} says hello to the world." for number in range(30)]


@pytest.fixture
def translate(tmp_path):
    def call(service, table, **options):
        given = {"targets": ["fr-FR"], "run_dir": tmp_path / "run", "progress": False} | options
        return spf.translate(table, service=service.settings, **given)

    return call


def test_a_refused_pack_is_split_until_only_its_bad_row_fails(translate):
    with FaultyService(scripts={LINES[7]: ["400", "..."]}) as service:
        frame = translate(service, LINES).to_pandas()
        books = service.books()
    assert [status for status in frame["status"] if status != "done"] == ["failed"]
    assert frame["status"][7] == "failed"
    assert frame["translated_text"][8] == "eniL 8 syas olleh ot eht dlrow. (fr-FR)"
    assert books.requests <= 11
    assert len(books.billed) == 29
    assert not books.duplicates


def test_a_bad_entry_costs_its_own_row_and_a_doubtful_one_is_suspect(translate):
    odd = {
        LINES[3]: {"translated_text": "null"},
        LINES[5]: {"translated_text": '""'},
        LINES[6]: {"translated_text": f'"{LINES[6]}"'},
    }
    with FaultyService(odd=odd) as service:
        frame = translate(service, LINES).to_pandas()
        books = service.books()
    assert dict(frame["status"].value_counts()) == {"done": 27, "suspect": 2, "charged_unknown": 1}
    assert frame["status"][3] == "charged_unknown"
    assert list(frame["error_code"][5:7]) == ["empty", "untranslated"]
    assert books.billed[tag_of(LINES[3])].times == 1
    assert not books.duplicates
