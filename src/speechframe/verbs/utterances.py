"""The verb `utterances`, which lists the utterances of dubs. The verb is our addition to the document."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from speechframe.batch.live import Run
from speechframe.client import Client
from speechframe.errors import refuse
from speechframe.spec.dubbing import DubbedUtterance, DubUtterances
from speechframe.store.schema import FINISHED_STATUSES

if TYPE_CHECKING:
    import pandas as pd

LINK_FIELD_OF_COLUMN = {
    "dub_path": "download_url",
    "srt_path": "download_srt_url",
    "vtt_path": "download_vtt_url",
}
"""Maps the column of a file's path to the field of the job's status with the URL of the file."""

DubRow = dict[str, Any]
"""Row id, locale, job id, status and file paths of one row."""


def list_dub_rows(run: Run) -> list[DubRow]:
    """Return the rows of a run that have a dub, or raise InvalidRows if the run is of another verb."""
    if run.operation != "dub":
        fault = f"is a run of {run.operation}"
        raise refuse("run", fault, allowed="a run of dub()")
    names = {
        name: run.name_of(name) for name in ("row_id", "locale", "job_id", "status", *LINK_FIELD_OF_COLUMN)
    }
    rows = run.to_arrow(columns=list(names.values())).to_pylist()
    named = [{name: row[column] for name, column in names.items()} for row in rows]
    return [row for row in named if row["status"] in FINISHED_STATUSES]


async def utterances(run: Run, *, service: Any = None) -> "pd.DataFrame":
    """Return the utterances of a run's dubs, one row each, with speaker, text and times.

    An utterance is one sentence of one speaker. To correct a dub, change ``text`` or ``voice_id`` and pass
    the table to :func:`correct`. Only speechframe's own service lists utterances.

    Parameters
    ----------
    run
        A run of :func:`dub`.
    service
        The service that made the dubs. The default is the configured service.

    Returns
    -------
    pandas.DataFrame
        ``row_id``, ``locale`` and the fields of :class:`speechframe.spec.dubbing.DubbedUtterance`, such as
        times in milliseconds, ``speed`` (1 is the voice's normal speed) and ``fit`` (whether the speech fits
        in its time).

    Raises
    ------
    InvalidRows
        If `run` is not a run of :func:`dub`.
    ServiceError, ConnectionFailed
        If the service does not list utterances, or cannot be reached.

    Examples
    --------
    >>> table = spf.utterances(run)  # doctest: +SKIP
    >>> table.loc[table["fit"] == "OVERRUN", ["start_ms", "text", "speed"]]  # doctest: +SKIP
    """
    async with Client(service) as client:
        return await fetch_table(client, list_dub_rows(run))


async def fetch_utterances(client: Client, row: DubRow) -> DubUtterances:
    """Return the utterances of one dub."""
    return await client.dubbing.utterances(row["job_id"], row["locale"])


async def fetch_table(client: Client, rows: Iterable[DubRow]) -> "pd.DataFrame":
    """Return the utterances of some dubs, one row each."""
    import pandas as pd

    found = [
        {"row_id": row["row_id"], "locale": row["locale"], **one.model_dump(mode="json")}
        for row in rows
        for one in (await fetch_utterances(client, row)).utterances
    ]
    return pd.DataFrame(found, columns=["row_id", "locale", *DubbedUtterance.model_fields])
