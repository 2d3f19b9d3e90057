"""What a run says it holds and spent, against what the service billed."""

from speechframe.spec.texts import count_billed_characters
from speechframe.testing import tag_in, tag_of


def statuses(run):
    """Return the status of every row, in the table's order."""
    return list(run.to_pandas()["status"])


def check_audio(run):
    """See that every row with audio has its own."""
    for row in run.to_pandas(audio=True).itertuples():
        if row.status in {"done", "cached"}:
            assert tag_in(row.audio["bytes"]) == tag_of(row.text), f"{row.text!r} has another row's audio"


def times_billed(service, text):
    """Return how often the service billed a text."""
    billed = service.books().billed.get(tag_of(text))
    return billed.times if billed else 0


def billed(service, texts):
    """Return the characters that the service billed for these texts."""
    found = service.books().billed
    return sum(found[tag].characters for tag in {tag_of(text) for text in texts} & set(found))


def price(texts):
    """Return what these texts cost, each once."""
    return sum(map(count_billed_characters, set(texts)))
