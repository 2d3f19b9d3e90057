"""The verb `correct` has utterances of dubs spoken anew (chosen: dub-review)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from speechframe.backends.dub_job import detail_of, fetch_file
from speechframe.batch.live import Run
from speechframe.client import Client
from speechframe.errors import InvalidRows, JobFailed
from speechframe.tables.table import problem
from speechframe.verbs.utterances import FILES, Row, dub_rows, table_of, utterances_of

if TYPE_CHECKING:
    import pandas as pd

    from speechframe.spec.dubbing import DubbedUtterance

_CORRECTED = ("text", "voice_id")


async def correct(run: Run, corrections: Any, *, service: Any = None) -> "pd.DataFrame":
    """Have utterances of a run's dubs spoken anew, fetch the dubs that this makes, and return all utterances.

    It costs nothing. Dubs keep their names in the run's folder. Their columns in the run, such as
    ``overruns``, stay those of the first version. After a call that was cut off, the same call fetches the
    dubs that the first one made.

    Parameters
    ----------
    run
        A run of :func:`dub` with ``review=True``, or of a QA project.
    corrections
        The table of :func:`utterances` with other texts or voices in it, or a few rows of such a table, or a
        list of mappings: ``row_id``, ``utterance_id`` and ``text``, ``voice_id`` or both. What is as it was
        is not sent.
    service
        As for :func:`utterances`.

    Raises
    ------
    InvalidRows
        When there is no such row or utterance; nothing is sent then.
    JobFailed
        When a dub could not be made again, as when a text cannot be spoken: the one before stays.
    ServiceError, ConnectionFailed
        When the service refuses a correction (the voice does not speak the locale, the job is not reviewed),
        or cannot be reached.

    Examples
    --------
    >>> spf.correct(run, [{"row_id": "intro/pt-BR", "utterance_id": 3, "text": "Bom dia!"}])  # doctest: +SKIP
    """
    rows = {row["row_id"]: row for row in dub_rows(run)}
    asked = list(_asked(corrections))
    async with Client(service) as client:
        known: dict[tuple[str, Any], DubbedUtterance] = {}
        changed: dict[str, list[dict[str, Any]]] = {}
        for row_id in {*rows} & {row_id for row_id, _, _ in asked}:
            await client.dubbing.wait(rows[row_id]["job_id"])  # a correction of a call that was cut off
            said = await utterances_of(client, rows[row_id])
            known |= {(row_id, one.utterance_id): one for one in said.utterances}
            if said.version > 1:
                changed[row_id] = []  # that call may have ended before its downloads
        for row_id, utterance_id, wanted in asked:
            if (before := known.get((row_id, utterance_id))) is None:
                words, value = "names no utterance of this run", f"{row_id}, {utterance_id}"
                raise InvalidRows(
                    [problem("corrections", words, value=value, allowed="rows of utterances(run)")]
                )
            new = {name: text for name, text in wanted.items() if text not in (None, getattr(before, name))}
            if new:
                changed.setdefault(row_id, []).append({"utterance_id": before.utterance_id, **new})
        for row_id, wishes in changed.items():  # in turn, because a job corrects one locale at a time
            await _again(client, run, rows[row_id], wishes)
        return await table_of(client, rows.values())


async def _again(client: Client, run: Run, row: Row, new: list[dict[str, Any]]) -> None:
    """Have one dub made again if something is new, and fetch its files into their places."""
    # Check the paths before anything is sent, because the run may come from somebody else.
    places = {name: run.folder.inside(row[name]) for name in FILES if row[name] is not None}
    if new:
        await client.dubbing.update_utterances(row["job_id"], row["locale"], new)
    status = await client.dubbing.wait(row["job_id"])
    detail = detail_of(status, row["locale"])
    if new and detail.error_message is not None:  # the version before is still there
        raise JobFailed(f"{row['row_id']}: {detail.error_message}")
    for name, link in FILES.items():
        if name in places and (url := getattr(detail, link)) is not None:
            await fetch_file(client.dubbing, url, places[name])


def _asked(corrections: Any) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield row, utterance and new fields, None for a field that stays, or raise InvalidRows."""
    given: Iterable[Any] = corrections
    if hasattr(corrections, "to_dict"):
        given = corrections.astype(object).where(corrections.notna(), None).to_dict("records")
    for one in given:
        if not isinstance(one, Mapping) or not {"row_id", "utterance_id"} <= {*one}:
            allowed = "a table or mappings with row_id, utterance_id and text or voice_id"
            raise InvalidRows([problem("corrections", "is no correction", value=one, allowed=allowed)])
        yield str(one["row_id"]), one["utterance_id"], {name: one.get(name) for name in _CORRECTED}
