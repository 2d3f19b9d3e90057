"""The verb `dub`, which dubs each media file of a table into several locales.

Sections 2.8 to 2.11 and 4.5 of the service document describe the dubbing calls.

One job of the service dubs a medium into all locales, so the rows of a medium share a job. A run stores the
id of a job before it waits for the job. So a resumed run finds its jobs, and starts none twice.
"""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
from pydantic import SecretStr

from speechframe.audio.lengths import measure_media_seconds
from speechframe.backends.dub_job import DeliveredDub, Dub, JobBackend, iterate_projects, normalise_locale
from speechframe.backends.files import find_files, store_clip
from speechframe.backends.targets import pack_rows, read_targets, refuse_targets, share_cost
from speechframe.batch.backend import Answer, Finding, Opened, Record, Request
from speechframe.batch.live import Run
from speechframe.batch.progress import describe_duration
from speechframe.batch.run_options import RunOptions
from speechframe.client.dubbing import is_url
from speechframe.client.upload import Upload, read_medium
from speechframe.errors import (
    AudioError,
    BadAnswer,
    InvalidRows,
    SettingsError,
    SpeechframeError,
    make_problem,
    refuse,
)
from speechframe.scale.run import make_run
from speechframe.settings import Settings
from speechframe.settings.hidden import SECRET_VARIABLE, wrap_key
from speechframe.settings.typed import is_address
from speechframe.spec.billing import (
    MILLICREDITS_PER_CREDIT,
    PRICES,
    compute_dub_millicredits,
    convert_to_credits,
)
from speechframe.spec.check import FieldProblem, check, shorten_value
from speechframe.spec.chosen import ORIGINAL_GAIN_DB_RANGE
from speechframe.spec.dubbing import MEDIA_TYPES, DubbingType, JobCreateRequest, Priority, Project
from speechframe.store.schema import columns
from speechframe.tables.column import Column
from speechframe.wire.answers import make_amount_warning, read_amount
from speechframe.wire.requests import encode_canonical_json
from speechframe.writing.words import format_count

DUB_COLUMNS = columns(
    job_id=pa.string(),
    job_status=pa.string(),
    dub_path=pa.string(),
    srt_path=pa.string(),
    vtt_path=pa.string(),
    audio_seconds=pa.float64(),
    utterances=pa.int64(),
    start_offset_ms_median=pa.float64(),
    start_offset_ms_worst=pa.int64(),
    speed_min=pa.float64(),
    speed_max=pa.float64(),
    overruns=pa.int64(),
    overlap=pa.float64(),
    cues_over=pa.int64(),
)
"""Columns of a dub. Paths are below the run's folder. Columns that only our own service fills may be null."""

# Arguments of :func:`dub` that fill a field of the form. All but `scripts` have the name of their field.
_FORM_ARGUMENTS = (
    "source_locale",
    "scripts",
    "script_locale",
    "cast",
    "priority",
    "webhook_url",
    "original_gain_db",
)
# Name of the field that the argument `scripts` fills.
_SCRIPT_FIELD = "script"
_OWN_SERVICE_ARGUMENTS = {
    "scripts": None,
    "script_locale": None,
    "cast": None,
    "original_gain_db": ORIGINAL_GAIN_DB_RANGE.default,
}
"""Arguments that only speechframe's own service accepts, each with the value that changes nothing."""
# Fields that do not change the dub, so they are not part of the request key.
_FIELDS_OUTSIDE_KEY = frozenset({"priority", "webhook_url"})
_JOBS_AT_ONCE = 8
"""Concurrent jobs at the start of a run. There are many, because a job mostly waits."""
# Project ids that an error lists at most.
_MAX_SHOWN_PROJECTS = 20
# Longest length that `seconds` may state, in seconds (about 11 days).
_MAX_STATED_S = 1e6
_LENGTH_TOLERANCE_SHARE, _LENGTH_TOLERANCE_S = 0.1, 1.0
"""A dub may be longer or shorter by the sum of these: a share of the medium's length, and seconds."""


class DubBackend(JobBackend):
    """Backend of `dub`. It makes a job from a medium and its locales, and a row from each dub."""

    operation = "dub"
    columns = DUB_COLUMNS
    arguments = ("media", "targets", "project", "review", "is_signed", "seconds", *_FORM_ARGUMENTS)
    data_arguments = frozenset({"media"})
    table_arguments = frozenset({"targets"})
    carried = frozenset({"media"})
    unit = "dub"
    is_long = leaves_files = True

    def __init__(self, settings: Settings, constants: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._targets: Sequence[str] = constants.get("targets") or ()
        self._project: str | None = constants.get("project")
        self._review: bool = constants.get("review") or False
        self._is_signed = bool(constants.get("is_signed"))
        self._base = Path.cwd()  # folder in which relative paths begin
        # The medium that was inspected last, its upload, and its length or the error of the measurement. The
        # rows of its other locales follow, and use the same values.
        self._last: tuple[Any, Upload, float | AudioError] | None = None

    @property
    def key(self) -> SecretStr | None:
        """The dubbing key, or else the API key."""
        return self.settings.dub_api_key or self.settings.api_key

    async def open(self) -> Opened:
        """Return the facts of the service. Dubs cannot have further takes."""
        if self._is_signed:
            self.secret = self.settings.webhook_secret
            if self.secret is None:
                raise SettingsError(
                    "the webhooks of this run are signed, but their secret is missing, because runs do not "
                    f"store it; set {SECRET_VARIABLE}"
                )
        opened = await super().open()
        # All dubbing calls go to the first region, because a job exists only in its region. Use a separate
        # lane (a region with its cap on concurrent calls), because a waiting job does not count as a call.
        first = opened.lanes[0]
        lane = replace(first, identity=f"{first.identity} dub", published=None, guess=_JOBS_AT_ONCE)
        return replace(opened, lanes=(lane,), takes=False, balance=None)

    async def look_up(self) -> Mapping[str, Any]:
        """Fetch the locales of the project. Without a project, raise InvalidRows for impossible targets."""
        if self._project is not None:
            self._targets = [normalise_locale(one) for one in (await self._find_project()).target_locales]
            return {}
        offered = await self.client.dubbing.list_destination_languages()
        wanted = DubbingType.QA if self._review else DubbingType.AUTOMATED
        known = [normalise_locale(one.locale) for one in offered if wanted in one.supports]
        fault = "is not a locale that this service dubs into" + (" with a review" if self._review else "")
        refuse_targets([one for one in self._targets if one not in known], known, fault)
        return {}

    async def _find_project(self) -> Project:
        """Return the project of this run, or raise InvalidRows with the known project ids."""
        known = []
        async for project in iterate_projects(self.client):
            if project.project_id == self._project:
                return project
            known.append(project.project_id)
        allowed = (
            ", ".join(known[:_MAX_SHOWN_PROJECTS])
            or "none yet, so create one with Client.dubbing.create_project()"
        )
        raise refuse("project", "is unknown", value=self._project, allowed=allowed)

    def source(self, table: Any) -> Any:
        """Return the table, or a list of the media files if `table` is a folder or a media file.

        Relative paths in the file of a table begin at the folder of this file.
        """
        source, self._base = find_files(table, MEDIA_TYPES, "media")
        return source

    def expand(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the row once for each locale."""
        for locale in self._targets:
            yield f"/{locale}", {**values, "locale": locale}

    def check(self, values: Mapping[str, Any]) -> Request | list[FieldProblem]:
        """Return the request for one medium and locale, or all of its problems."""
        problems: list[FieldProblem] = []
        medium, seconds = self._read_medium(values, problems)
        fields = self._read_fields(values, problems)
        if problems:
            return problems
        targets = list(self._targets) if self._project is not None else []
        dub = Dub(values["locale"], medium, fields, self._project, self._review, targets, seconds)
        # Leave out the path of the file, the priority and the webhook, because they do not change the dub.
        content_fields = {name: value for name, value in fields.items() if name not in _FIELDS_OUTSIDE_KEY}
        medium_id = medium.get("sha256") or medium["url"]
        content = encode_canonical_json([medium_id, dub.locale, content_fields, dub.project, dub.review])
        price = 0 if seconds is None else compute_dub_millicredits(seconds, 1)
        return Request(
            content, encode_canonical_json(asdict(dub)), price, 0, {"locale": dub.locale}, varies=False
        )

    def _read_fields(self, values: Mapping[str, Any], problems: list[FieldProblem]) -> dict[str, Any]:
        """Return the form fields of the job of a row. Add the faults of the fields to `problems`."""
        given = {name: values.get(name) for name in _FORM_ARGUMENTS}
        foreign = [name for name, usual in _OWN_SERVICE_ARGUMENTS.items() if given[name] not in (None, usual)]
        for name in () if self.limits else foreign:
            fault = "works only with speechframe's own service"
            problems.append(
                FieldProblem(name, fault, shorten_value(given[name]), "leave it out for this service")
            )
        script = given[_SCRIPT_FIELD] = given.pop("scripts")
        if self.limits and isinstance(script, str) and "-->" not in script:
            try:
                given[_SCRIPT_FIELD] = (self._base / Path(script).expanduser()).read_text(
                    encoding="utf-8-sig"
                )
            except (OSError, ValueError) as error:
                fault = f"cannot be read: {getattr(error, 'strerror', None) or error}"
                allowed = "SRT or WebVTT, as text or as the path of a file"
                problems.append(FieldProblem("scripts", fault, shorten_value(script), allowed))
        found = check(JobCreateRequest, {**given, "file": b"", "target_locales": [values["locale"]]})
        problems += [
            replace(one, field="scripts") if one.field == _SCRIPT_FIELD else one for one in found.problems
        ]
        if found.value is None:
            return {}
        kept: Any = {"mode": "json", "exclude_none": True, "exclude_defaults": True}
        return found.value.model_dump(exclude={"file", "target_locales"}, **kept)

    def _read_medium(
        self, values: Mapping[str, Any], problems: list[FieldProblem]
    ) -> tuple[dict[str, Any], float | None]:
        """Return the facts of a row's medium, and its length in seconds, or None if the length is unknown.

        Adds faults to `problems`.
        """
        given, seconds = values.get("media"), values.get("seconds")
        if isinstance(given, Mapping):
            given = next((v for v in (given.get("bytes"), given.get("path")) if v is not None), None)
        if seconds is not None and not (isinstance(seconds, (int, float)) and 0 < seconds < _MAX_STATED_S):
            problems.append(
                FieldProblem("seconds", "is not a length", shorten_value(seconds), "a number above 0")
            )
        medium: dict[str, Any] = {}
        if is_url(given):
            medium["url"] = given.strip()
        else:
            try:
                upload, measured = self._inspect_medium(given)
            except (AudioError, TypeError) as error:
                allowed = "a path, an http(s) URL or the bytes of a file"
                problems.append(FieldProblem("media", str(error), shorten_value(given), allowed))
                return {}, None
            if isinstance(measured, float):
                seconds = measured
            elif seconds is None:
                allowed = "a medium whose length can be measured here, or seconds= with its length"
                problems.append(FieldProblem("media", str(measured), shorten_value(given), allowed))
                return {}, None
            medium |= {name: getattr(upload, name) for name in ("sha256", "size_bytes", "media_type")}
            medium["path"] = str(upload.path)
        if seconds is None:
            self.remark = "the price does not include media of unknown length"
            if self.is_budgeted:
                fault = "has an unknown length and so an unknown price, but a budget is set"
                problems.append(
                    FieldProblem("media", fault, shorten_value(given), "give its length as seconds=")
                )
        return medium, seconds

    def _inspect_medium(self, given: Any) -> tuple[Upload, float | AudioError]:
        """Return a file as an upload, and its length in seconds or the error of the measurement."""
        if self._last is None or self._last[0] is not given:
            medium: Path | bytes
            if isinstance(given, (str, os.PathLike)):
                medium = self._base / Path(given).expanduser()
                upload = read_medium(medium)
            else:
                upload = read_medium(given)
                medium, upload = upload.data, store_clip(self.folder, upload)
            try:
                self._last = given, upload, measure_media_seconds(medium)
            except AudioError as error:
                self._last = given, upload, error
        return self._last[1:]

    def pack(self, requests: Iterator[Request]) -> Iterator[Request]:
        """Yield one call for all rows of a job. The rows of a medium follow each other in `requests`."""
        for _, rows in itertools.groupby(requests, key=lambda row: Dub.from_request(row).job):
            yield pack_rows(rows)

    def describe(self, price: int) -> str | None:
        """Return the total length of the dubs that cost `price` thousandths of a credit."""
        return f"{describe_duration(price / PRICES['dub'].millicredits)} of dubs"

    def records(self, request: Request, answer: Answer) -> list[Record | SpeechframeError]:
        """Return a record for the dub of each row of a job, or the error of the row."""
        if isinstance(answer.data, SpeechframeError):
            return [answer.data for _ in request.rows]
        status, found, warning = answer.data
        used = read_amount(status.credits_used)
        remarks = [warning] if warning else []
        if used is None and status.credits_used is not None:
            remarks.append(make_amount_warning("credits_used", status.credits_used))
        costs = _share_costs(request.rows, found, used)
        # An unusable dub is billed. A locale that failed at the service is not billed.
        planned = convert_to_credits(
            sum(row.price for row, dub in zip(request.rows, found, strict=True) if _is_billed(dub))
        )
        if used is not None and None not in costs and planned:
            remarks.append(
                f"the service reports a cost of {format_count(used, 'credit')}, expected {planned:,.10g}"
            )
        records: list[Record | SpeechframeError] = []
        for dub, cost in zip(found, costs, strict=True):
            if isinstance(dub, SpeechframeError):
                dub.millicredits = cost
                records.append(dub)
                continue
            values, basis = dub.values, "computed"
            if cost is not None:
                # Use the billed length, which may differ from the planned length.
                values, basis = {**values, "audio_seconds": cost / PRICES["dub"].millicredits}, "reported"
            warnings = [*remarks, *dub.warnings]
            records.append(
                _DubRecord(values, warnings=warnings, millicredits=cost, basis=basis, dub_seconds=dub.seconds)
            )
        return records

    def judge(self, request: Request, record: Record, learned: dict[str, Any]) -> list[Finding]:
        """Return a finding if the length of a dub differs too much from the length of its medium."""
        del learned
        planned, dub_s = Dub.from_request(request), getattr(record, "dub_seconds", None)
        # The length of a medium at a URL is only the user's statement.
        medium_s = planned.seconds if "path" in planned.medium else None
        if medium_s is None or dub_s is None:
            return []
        if abs(dub_s - medium_s) <= _LENGTH_TOLERANCE_S + _LENGTH_TOLERANCE_SHARE * medium_s:
            return []
        return [Finding("length", f"the medium lasts {medium_s:.2f} s, but its dub {dub_s:.2f} s")]


@dataclass(slots=True)
class _DubRecord(Record):
    """The record of a dub, with the length of the dub's file in seconds, or None if unknown."""

    dub_seconds: float | None = None


def _is_billed(dub: DeliveredDub | SpeechframeError) -> bool:
    """Return whether the service bills a row. BadAnswer means that its dub exists but is unusable."""
    return not isinstance(dub, SpeechframeError) or isinstance(dub, BadAnswer)


def _share_costs(
    rows: Sequence[Request], found: Sequence[DeliveredDub | SpeechframeError], used: float | None
) -> list[int | None]:
    """Return the cost of each row in thousandths of a credit. None stands for the row's planned price.

    `used` are the credits that the service reports for the job, or None. If no locale has a dub, all rows of
    the job share these credits.
    """
    is_billed = [_is_billed(dub) for dub in found]
    prices = [row.price for row, billed in zip(rows, is_billed, strict=True) if billed]
    # Allow a difference of one credit, because services report whole credits.
    is_as_planned = (
        used is not None and 0 not in prices and abs(used - sum(prices) / MILLICREDITS_PER_CREDIT) <= 1
    )
    if used is None or (is_as_planned if prices else not used):
        return [None] * len(rows)
    # A row of unknown price has the price 0, but needs a weight above 0.
    weights = [
        row.price or 1 if billed or not prices else 0 for row, billed in zip(rows, is_billed, strict=True)
    ]
    return [*share_cost(weights, used)]


async def dub(
    table: Any,
    *,
    media: str | Column | Any = "media",
    targets: list[str] | None = None,
    project: str | None = None,
    source_locale: str | Column | Any = None,
    scripts: str | PathLike[str] | Column | Any = None,
    script_locale: str | Column | Any = None,
    cast: Mapping[str, str] | None = None,
    priority: str | Column | Any = Priority.NORMAL.value,
    webhook_url: str | None = None,
    webhook_secret: str | None = None,
    review: bool = False,
    original_gain_db: float | Column | Any = ORIGINAL_GAIN_DB_RANGE.default,
    seconds: float | Column | Any = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Return a :class:`Run` with every medium of `table` dubbed into every locale, one row each.

    A medium is a video or audio file. A row of the run is a row of the table with a locale. Its id is
    ``<id>/<locale>``, such as ``intro/pt-BR``. ``dub_path``, ``srt_path`` and ``vtt_path`` are paths of its
    files below the run's folder, such as ``dubs/intro.pt-BR.mp4``. ``utterances``, ``start_offset_ms_median``
    and ``_worst``, ``speed_min`` and ``_max``, ``overruns``, ``overlap`` and ``cues_over`` measure the fit of
    the speech. They are null if the service does not report them. ``audio_seconds`` is the billed length. A
    failed locale is a failed row, and the other locales of its medium are kept.

    One job dubs a medium into all locales. Calling again with the same media and parameters costs nothing.
    After a crash, the run continues with its jobs and starts none twice. If a crash leaves unknown whether a
    job was started, and the service does not promise free repeats, the rows of the job are
    ``charged_unknown``.

    Parameters
    ----------
    table
        Any table of :func:`generate`, media files (a list of paths, or one path), or a folder of media files.
    media
        The column of media, or a Series or list of media. A medium may be a path relative to the table's
        file, an http(s) URL that the service fetches, or the bytes of a file.
    targets
        Locales to dub into, in any spelling, such as ``["fr-FR", "pt_BR"]``. Pass either `targets` or
        `project`.
    project
        Id of a project. The project sets the locales, and whether its dubs are reviewed.
    source_locale
        Locale of the speech in the media, if known. If a medium has several audio tracks, the track in this
        language is dubbed.
    scripts
        Speakers and lines as SRT or WebVTT. The service then does not recognise the speech. Pass a text or
        the path of a file; ``col("x")`` takes the value from a column. Warnings list the speakers, and each
        line that was skipped or is not speech.
    script_locale
        Locale of the script, if it is already translated.
    cast
        Maps the name of a speaker to a voice id.
    priority
        ``LOW``, ``NORMAL`` (default) or ``HIGH``.
    webhook_url
        The service sends a request to this URL when a job ends. See :func:`receive_webhooks`.
    webhook_secret
        The secret that signs these requests. The default is ``SPEECHFRAME_WEBHOOK_SECRET``. Runs do not store
        the secret, so a resumed run reads it from the environment.
    review
        True makes a project in which the dubs can be reviewed.
    original_gain_db
        Level of the original sound under the dub in dB, -60 to 0 (default -18).
    seconds
        Length of the media in seconds, needed if the length cannot be measured here, as for URLs. The length
        determines the price. The embedded service refuses a job that costs more, without charge.
    **options
        See :class:`RunOptions`: ``run_dir``, ``id``, ``max_credits``, ``dry_run``, ``wait`` and more.
        ``timeout_s`` limits each request to the service, not the whole job. Dubs cannot have further takes.

    Raises
    ------
    InvalidRows
        If rows cannot be sent, or a medium of unknown length is under a budget. Nothing is spent then.
    RunMismatch, RunLocked, StoreError, SettingsError, ServiceError, ConnectionFailed
        As for :func:`generate`.

    Examples
    --------
    >>> import speechframe as spf
    >>> run = spf.dub(["intro.mp4"], targets=["pt-BR", "fr-FR"])  # doctest: +SKIP
    >>> run.to_pandas()[["locale", "dub_path", "overruns", "credits"]]  # doctest: +SKIP
    """
    secret = wrap_key(webhook_secret)
    del webhook_secret
    service: Any = options["service"]
    if secret is not None:
        service = replace(service, webhook_secret=secret)
        options["service"] = service
    if is_address(run_dir := options.get("run_dir") or ""):
        raise SettingsError(f"run_dir={run_dir!r} is an address; allowed for dubs: a local folder")
    _check_arguments(targets, project, source_locale, review=review)
    is_signed = getattr(service, "webhook_secret", None) is not None and webhook_url is not None
    arguments = {
        "media": media,
        "targets": None if targets is None else read_targets(targets),
        "project": project,
        "source_locale": source_locale,
        "scripts": os.fspath(scripts) if isinstance(scripts, PathLike) else scripts,
        "script_locale": script_locale,
        "cast": cast,
        "priority": priority,
        "webhook_url": webhook_url,
        "is_signed": is_signed or None,
        "review": review or None,
        "original_gain_db": original_gain_db,
        "seconds": seconds,
    }
    return await make_run(DubBackend(service, arguments), table, arguments, options)


def _check_arguments(targets: Any, project: Any, source_locale: Any, *, review: bool) -> None:
    """Raise InvalidRows for arguments that exclude each other, and if targets and project are missing."""
    if (targets is None) is (project is None):
        fault = "is missing, and so is project" if targets is None else "is given, and so is project"
        raise refuse("targets", fault, allowed="exactly one of targets and project")
    if project is None:
        return
    allowed = "leave it out if project is given"
    given = {"source_locale": source_locale, "review": review or None}
    set_twice = {name: value for name, value in given.items() if value is not None}
    if set_twice:
        fault = "is set by the project"
        raise InvalidRows([make_problem(n, fault, value=v, allowed=allowed) for n, v in set_twice.items()])
