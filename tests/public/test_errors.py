"""Errors carry data, and say what to do."""

import inspect
import pickle
import re

import pytest

from speechframe import errors
from speechframe.spec.codes import Status

KINDS = [k for k in vars(errors).values() if inspect.isclass(k) and issubclass(k, errors.SpeechframeError)]
DRAWN = {k.__name__ for k in KINDS if not k.__name__.startswith("_")}


def test_one_root_and_the_picture_shows_every_class():
    drawn = set(re.findall(r"[─ ] ?([A-Z]\w+)", errors.__doc__.split("::")[1].split("An error carries")[0]))
    assert drawn | {"SpeechframeError"} >= DRAWN


def test_every_status_of_the_document_has_a_class_and_another_is_a_plain_service_error():
    for status in (s for s in Status if s >= 400 and s not in {404, 405}):
        error = errors.make_service_error(
            "because", status=status, code="CODE", trace_id="t1", retry_after_s=2.0
        )
        assert type(error) is not errors.ServiceError
        assert error.retryable is status.retryable
        assert all(words in str(error) for words in (str(status.value), "t1", "because"))
    error = errors.make_service_error("teapot", status=418)
    assert type(error) is errors.ServiceError
    assert error.retryable is False


@pytest.mark.parametrize(
    "error",
    [
        errors.make_service_error(
            "m", status=429, code="C", trace_id="t", retry_after_s=1.5, row_key="k", attempts=3
        ),
        errors.TimedOut("m", sent=True),
        errors.InvalidRows([{"row_id": "1", "field": "text", "problem": "is empty"}], total=7),
        errors.BudgetExceeded("m", max_credits=1.0, spent_credits=2.0, needed_credits=3.0),
        errors.BadAnswer("m", trace_id="t", remaining_characters=5),
        errors.StreamBroken("m", received_bytes=7, trace_id="t"),
        errors.JobFailed("m", code="C"),
        errors.AnalysisError("m", column="votes", rows=[3, 5]),
        errors.ListeningError("m", missing=[("item", "a")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_process_boundaries_with_their_data(error):
    error.add_note("row 3")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert back.__notes__ == ["row 3"]
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_invalid_rows_show_the_first_and_count_the_rest():
    problems = [
        {"row_id": str(i), "field": "text", "problem": "is empty", "value": "", "allowed": "text"}
        for i in range(9)
    ]
    words = str(errors.InvalidRows(problems))
    assert words.startswith("9 problems in 9 rows; nothing was sent:")
    assert "row '4', text: is empty; allowed: text" in words
    assert "row '5'" not in words
    assert "4 more" in words
