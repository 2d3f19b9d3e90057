"""The verb `correct`, which corrects dubs. The verb is our addition to the service document."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from speechframe.backends.dub_job import fetch_file, find_detail
from speechframe.batch.live import Run
from speechframe.client import Client
from speechframe.errors import JobFailed, refuse
from speechframe.verbs.utterances import (
    LINK_FIELD_OF_COLUMN,
    DubRow,
    fetch_table,
    fetch_utterances,
    list_dub_rows,
)

if TYPE_CHECKING:
    import pandas as pd

    from speechframe.spec.dubbing import DubbedUtterance

# Fields of an utterance that can be corrected.
_CORRECTABLE_FIELDS = ("text", "voice_id")


async def correct(run: Run, corrections: Any, *, service: Any = None) -> "pd.DataFrame":
    """Correct utterances of a run's dubs, fetch the new dubs, and return all utterances.

    Corrections are free. The new dubs replace the files in the run's folder. Columns of the run, such as
    ``overruns``, still describe the first version. If :func:`correct` was interrupted, call it again to fetch
    the new dubs.

    Parameters
    ----------
    run
        A run of :func:`dub` with ``review=True``, or of a QA project.
    corrections
        All or some rows of the table of :func:`utterances`, with changed texts or voices. Or a list of
        mappings with ``row_id``, ``utterance_id``, and ``text``, ``voice_id`` or both. Unchanged values are
        not sent.
    service
        As for :func:`utterances`.

    Raises
    ------
    InvalidRows
        If a row or utterance does not exist. Nothing is sent then.
    JobFailed
        If a new dub could not be made, for example because a text cannot be spoken. The earlier dub stays.
    ServiceError, ConnectionFailed
        If the service cannot be reached, or refuses a correction. The service refuses a voice that does not
        speak the locale, and jobs without review.

    Examples
    --------
    >>> spf.correct(run, [{"row_id": "intro/pt-BR", "utterance_id": 3, "text": "Bom dia!"}])  # doctest: +SKIP
    """
    rows = {row["row_id"]: row for row in list_dub_rows(run)}
    wanted_fields = list(_read_corrections(corrections))
    async with Client(service) as client:
        known: dict[tuple[str, Any], DubbedUtterance] = {}
        changed: dict[str, list[dict[str, Any]]] = {}
        for row_id in {*rows} & {row_id for row_id, _, _ in wanted_fields}:
            # The job may still apply the corrections of an interrupted call.
            await client.dubbing.wait(rows[row_id]["job_id"])
            listed = await fetch_utterances(client, rows[row_id])
            known |= {(row_id, one.utterance_id): one for one in listed.utterances}
            if listed.version > 1:
                changed[row_id] = []  # an interrupted call may not have fetched this version
        for row_id, utterance_id, wanted in wanted_fields:
            if (before := known.get((row_id, utterance_id))) is None:
                fault, value = "names no utterance of this run", f"{row_id}, {utterance_id}"
                raise refuse("corrections", fault, value=value, allowed="rows of utterances(run)")
            new = {name: text for name, text in wanted.items() if text not in (None, getattr(before, name))}
            if new:
                changed.setdefault(row_id, []).append({"utterance_id": before.utterance_id, **new})
        # Correct one dub after the other, because a job corrects one locale at a time.
        for row_id, new_fields in changed.items():
            await _correct_dub(client, run, rows[row_id], new_fields)
        return await fetch_table(client, rows.values())


async def _correct_dub(client: Client, run: Run, row: DubRow, new: list[dict[str, Any]]) -> None:
    """Send the new fields of one dub, if there are any, wait for the dub, and replace its files."""
    # Check the paths before anything is sent, because the run may come from somebody else.
    paths = {name: run.folder.find_path(row[name]) for name in LINK_FIELD_OF_COLUMN if row[name] is not None}
    if new:
        await client.dubbing.update_utterances(row["job_id"], row["locale"], new)
    status = await client.dubbing.wait(row["job_id"])
    detail = find_detail(status, row["locale"])
    if new and detail.error_message is not None:  # the service keeps the earlier version
        raise JobFailed(f"{row['row_id']}: {detail.error_message}")
    for name, link in LINK_FIELD_OF_COLUMN.items():
        if name in paths and (url := getattr(detail, link)) is not None:
            await fetch_file(client.dubbing, url, paths[name])


def _read_corrections(corrections: Any) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield the row id, the utterance id and the wanted fields of each correction.

    A field that is not to be changed is None. InvalidRows if `corrections` are not corrections.
    """
    given: Iterable[Any] = corrections
    if hasattr(corrections, "to_dict"):
        given = corrections.astype(object).where(corrections.notna(), None).to_dict("records")
    for correction in given:
        if not isinstance(correction, Mapping) or not {"row_id", "utterance_id"} <= {*correction}:
            allowed = "a table or mappings with row_id, utterance_id and text or voice_id"
            raise refuse("corrections", "is not a correction", value=correction, allowed=allowed)
        yield (
            str(correction["row_id"]),
            correction["utterance_id"],
            {name: correction.get(name) for name in _CORRECTABLE_FIELDS},
        )
