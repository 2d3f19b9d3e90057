"""One drive of one run: recover, plan, send what is missing, retake what is suspect, leave all in order."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from speechframe.errors import RunLocked, SpeechframeError
from speechframe.old_batch.accounts import Accounts
from speechframe.old_batch.ahead import LATENCY_KEY, Ahead, Outlook
from speechframe.old_batch.aligning import Aligner, align
from speechframe.old_batch.allowance import allowance
from speechframe.old_batch.books import Identity
from speechframe.old_batch.budget import Budget
from speechframe.old_batch.connection import Connection, settings_of
from speechframe.old_batch.drift import Drift, explained
from speechframe.old_batch.engine import Engine
from speechframe.old_batch.feed import MOST_KEPT, Outcomes
from speechframe.old_batch.filler import Filler
from speechframe.old_batch.job import Ways
from speechframe.old_batch.naming import ROW_ID
from speechframe.old_batch.operation import Operation
from speechframe.old_batch.options import Options
from speechframe.old_batch.outcome import Outcome
from speechframe.old_batch.plan import Plan, calls
from speechframe.old_batch.prepare import TableReplaced, check_table, prepare
from speechframe.old_batch.prepared import BUDGET_KEY, Known, Prepared, budget_json, retaken_in, sources_of
from speechframe.old_batch.progress import Bar, Progress, say
from speechframe.old_batch.queue import STILL_S
from speechframe.old_batch.redo import ids_of, is_all_made, own_rows, suspect_takes, unheard_takes
from speechframe.old_batch.run import DRIFT_KEY, REMARK_KEY, Run
from speechframe.old_batch.threads import in_thread
from speechframe.old_store import RunFolder, RunWriter
from speechframe.old_store.cache import open_cache
from speechframe.old_store.run_state import FINISHED, RUNNING, STATE_KEY, STOP_KEY, STOPPED, StopReason
from speechframe.settings.rules import cache_rules, spending_rules
from speechframe.spec.billing import CREDIT

log = logging.getLogger(__name__)

_READ_ROWS = 1024
"""Of the run's table, at once: a small part of what is in memory anyway."""


class Driver:
    """One drive of one run, from its lock to its last line.

    Parameters
    ----------
    run, prepared
        The run, and its table as it was checked.
    operation, connection, options
        The verb, the service, the run options.
    aligner
        What finds words in audio afterwards, where that is asked for.
    """

    def __init__(
        self,
        run: Run,
        prepared: Prepared,
        operation: Operation,
        connection: Connection,
        options: Options,
        aligner: Aligner | None = None,
    ) -> None:
        self.run = run
        self.prepared = prepared
        self.operation = operation.at(prepared.folder)
        self.connection = connection
        self.options = options
        self.aligner = aligner
        self.progress = Progress(balance=connection.balance, unit=operation.unit)
        self.outcomes = Outcomes(0 if options.wait else MOST_KEPT, loop=asyncio.get_running_loop())
        self.first_error: SpeechframeError | None = None
        self.engine: Engine | None = None
        self._stop_asked: StopReason | None = None
        self._round = ""
        self._given_back: set[str] = set()
        self.cache = open_cache(options.cache, **cache_rules(settings_of(options)))

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        return self.prepared.folder

    @property
    def is_stopping(self) -> bool:
        """Whether somebody has asked for the end of the run."""
        return self._stop_asked is not None

    @property
    def stopped_by(self) -> SpeechframeError | None:
        """What has ended the run before its last call."""
        return self.engine.stopped_by if self.engine is not None else None

    def error_to_raise(self) -> SpeechframeError | None:
        """Return the first error, where the caller wants it raised at the end."""
        if self.options.on_error == "column" or self.first_error is None:
            return None
        if not hasattr(self.first_error, "__notes__"):
            self.first_error.add_note(f"everything that was made is kept in {self.run.place}")
        return self.first_error

    def stop(self, drain: bool, because: StopReason = StopReason.STOPPED) -> None:  # noqa: FBT001 - called across threads
        """Start no further call; those in flight finish, or (no `drain`) are cancelled."""
        self._stop_asked = because if drain else StopReason.INTERRUPTED
        if self.engine is None:
            return
        if drain:
            self.engine.stop(self._stop_asked)
        else:
            self.engine.abort()

    async def drive(self, started: "asyncio.Future[bool]") -> None:
        """Make the run; `started` is told True when it is planned."""
        async with self.connection:
            await self._once(started)
            has_takes = self.connection.takes and self.operation.takes
            # Takes of an earlier drive, which may have been killed.
            goes_on = await self._give_back() and has_takes
            for number in range(self.options.max_retakes if goes_on else 0):
                self._round = f" (retake {number + 1} of {self.options.max_retakes})"
                stopped = self._stop_asked or self.engine is None or self.engine.stopped_because
                if stopped or not await self._retake():
                    break
        if self.aligner is not None and self._stop_asked is None:
            await self._align(self.aligner)
        self._close()

    async def _once(self, started: "asyncio.Future[bool]") -> None:
        with self.folder.lock():
            await self._locked(started)

    async def _locked(self, started: "asyncio.Future[bool] | None") -> None:
        check_table(self.prepared)
        await in_thread(self.folder.recover)
        ahead = await in_thread(self.look_ahead)
        self._open(ahead.plan)
        if started is not None and not started.done():
            self.run.estimate = ahead.plan.estimate
            started.set_result(True)
        await self._make(ahead)

    async def _retake(self) -> bool:
        """Make another take of what is suspect; False when nothing is, or nothing can vary."""
        found = await asyncio.to_thread(suspect_takes, self.folder, self.options.max_retakes)
        # One bad row costs one row: whose take was made in vain has no other one in this drive.
        suspects = {key: take for key, take in found.items() if key not in self._given_back}
        if not suspects:
            return False
        before, error, given_back = self.prepared.keys, self.first_error, len(self._given_back)
        with contextlib.ExitStack() as held:
            try:
                await self._stand_for({key: take + 1 for key, take in suspects.items()})
                if np.array_equal(before, self.prepared.keys):
                    return False
                held.enter_context(self.folder.lock())
                check_table(self.prepared)
            except (RunLocked, TableReplaced) as others:
                return self._leave_to(others)
            await self._locked(None)
        goes_on = await self._give_back()
        if len(self._given_back) > given_back:
            self.first_error = error
        return goes_on

    async def _give_back(self) -> bool:
        """Let paid audio stand again where a take made by itself has none; False if others have the run."""
        unheard = await asyncio.to_thread(unheard_takes, self.folder, self.prepared.keys, self.operation)
        if not unheard:
            return True
        self._given_back.update(unheard)
        try:
            await self._stand_for(dict.fromkeys(unheard))
            with self.folder.lock():
                check_table(self.prepared)
                if is_all_made(self.folder, self.prepared.keys):
                    self._note({STATE_KEY: FINISHED, STOP_KEY: None})
        except (RunLocked, TableReplaced) as others:
            return self._leave_to(others)
        return True

    def _leave_to(self, others: SpeechframeError) -> bool:
        """Say who has the run since its last call; what was made is whole, and theirs to go on with."""
        self._tell(f"no other take of what is suspect: {others}")
        return False

    def _on_wait(self, because: StopReason) -> None:
        """Say and note why the run ends while it still waits for calls that are paid for."""
        words = f"calls that are paid for are waited for, {STILL_S:.0f} s each at most"
        self._tell(f"stopping ({because}): {words}; resume() makes what is left")
        self._note({STOP_KEY: because})

    def _tell(self, words: str) -> None:
        say(words, shown=bool(self.options.progress))
        log.info("%s", words)

    async def _align(self, aligner: Aligner) -> None:
        aligned = await align(self.folder, aligner, is_stopped=lambda: self._stop_asked is not None)
        if aligned.found or aligned.failed:
            line = aligned.line(aligner.name)
            say(line, shown=bool(self.options.progress))
            log.info("%s; run folder %s", line, self.folder.path)

    async def _stand_for(self, takes: Mapping[str, int | None]) -> None:
        """Let other takes stand for calls (None: their own again), and plan the run's table anew."""
        row_ids = await asyncio.to_thread(ids_of, self.folder)
        known = Known(sources_of(self.folder), row_ids, takes, self.prepared.entry)
        options = replace(self.options, run_dir=self.folder.path, on_invalid="skip", dry_run=False)
        own, operation = own_rows(self.folder), self.operation
        self.prepared = await prepare(own, {}, operation, self.connection, options, known)
        self.run._folder = self.prepared.folder  # noqa: SLF001 - the two are made for each other

    def look_ahead(self) -> Ahead:
        """Return what is to be made, after what earlier drives left."""
        outlook = Outlook(
            self.run.run_id,
            self.prepared,
            self.operation,
            self.connection,
            self.options,
            self.cache,
            self._remark,
        )
        return outlook.ahead()

    @property
    def _remark(self) -> str | None:
        """What people are to know of the run beside what it does and costs."""
        said = self.operation.remark
        by = None if self.aligner is None else f"words are aligned with the audio by {self.aligner.name}"
        return "; ".join(words for words in (said, by) if words) or None

    def _open(self, plan: Plan) -> None:
        shown = bool(self.options.progress)
        kind = " (the embedded local service)" if self.connection.is_local else ""
        service = f"on {self.connection.identity}{kind}"
        say(f"{self.operation.name}{self._round} {service}: {plan.estimate.line()}", shown=shown)
        if self.prepared.is_default_dir:
            say(f"run folder: {self.run.place} (the same call again costs nothing)", shown=shown)
        if renamed := self._renamed():
            say(f"your columns keep their names; ours are called {', '.join(renamed)}", shown=shown)
        log.info(
            "%s %s: %s; run folder %s", self.operation.name, service, plan.estimate.line(), self.folder.path
        )
        progress = self.progress
        if progress.total == 0:
            progress.started = time.monotonic()
        progress.finished = None
        progress.total = progress.ended + plan.estimate.calls + plan.estimate.cached
        progress.planned_millis = progress.ended_millis + round(plan.estimate.credits * CREDIT)
        kept = {BUDGET_KEY: budget_json(self.options.max_credits), REMARK_KEY: self._remark}
        self._note({STATE_KEY: RUNNING, STOP_KEY: None, **kept})

    def _renamed(self) -> list[str]:
        entry = self.folder.tables()[-1]
        return sorted(set(entry.column_map.values()) - set(entry.hidden))

    async def _make(self, ahead: Ahead) -> None:
        bar = Bar(self.progress, name=self.operation.name, shown=self.options.progress is True)
        lanes = self.connection.lanes(self.operation.pool, self.options.max_concurrency)
        budget = allowance(
            self.connection,
            spending_rules(settings_of(self.options)),
            ahead.before,
            folder=self.folder.path,
            run_id=self.run.run_id,
            max_credits=self.options.max_credits,
        )
        try:
            async with budget as allowed:
                writer = self.folder.writer(tags=self.options.tags)
                filler = None if self.cache is None else Filler(self.cache)
                accounts = self._accounts(allowed, writer, filler)
                self.engine = Engine(
                    self.connection.client,
                    lanes,
                    accounts,
                    bar=bar,
                    before=ahead.before,
                    ask_balance=self.connection.asked_balance,
                    on_wait=self._on_wait,
                )
                try:
                    await self._send(ahead, self.engine)
                finally:
                    await in_thread(_close, writer, filler)
        finally:
            for lane in lanes:
                lane.close()
            self.progress.finished = time.monotonic()
            bar.close()
            self._note_end()

    async def _send(self, ahead: Ahead, engine: Engine) -> None:
        if self._stop_asked is not None:
            engine.stop(self._stop_asked)
        sources, row_id = self.prepared.sources, self.folder.tables()[-1].name_of(ROW_ID)
        columns = {row_id, *(source.column for source in sources.values() if source.column is not None)}
        with self.folder.table() as file:
            # Every thread that Arrow reads with keeps memory of its own for as long as the process lives.
            batches = file.iter_batches(batch_size=_READ_ROWS, columns=sorted(columns), use_threads=False)
            source = calls(
                batches,
                sources,
                self.operation,
                ahead.plan,
                row_id=row_id,
                retaken=retaken_in(self.folder),
                cached_only=lambda: engine.takes_free_only,
            )
            with contextlib.closing(source):
                await engine.run(self.operation.packed(source, ahead.together))
        balance = await self.connection.asked_balance() if self._stop_asked is None else None
        engine.accounts.quiet(balance)
        if balance is not None:
            # Not every answer says what is left.
            self.progress.balance = balance

    def _accounts(self, budget: Budget, writer: RunWriter, cache: Filler | None) -> Accounts:
        connection, options = self.connection, self.options
        return Accounts(
            self.operation,
            Identity(
                run_id=self.run.run_id,
                operation=self.operation.name,
                service=connection.identity,
                key_fingerprint=connection.key_fingerprint,
                tags=options.tags,
            ),
            Ways(
                max_attempts=options.max_attempts,
                patience_s=options.patience_s,
                repeat_is_free=connection.repeat_is_free,
                retry_unknown=options.on_unknown == "retry",
                timeout_s=options.timeout_s,
                sends_takes=connection.takes,
            ),
            budget,
            writer,
            self.progress,
            truth=self.operation.looker() if options.truth_checks else None,
            cache=cache,
            drift=Drift(self.connection.balance),
            on_outcome=self._on_outcome,
        )

    def _on_outcome(self, outcome: Outcome) -> None:
        error = getattr(outcome, "error", None)
        if error is not None:
            # The frames of a call hold its request and answer: many outcomes would keep many of them.
            error.__traceback__ = None
            self.first_error = self.first_error or error
        self.outcomes.tell(outcome)

    def _note_end(self) -> None:
        engine = self.engine
        stopped = engine.stopped_because if engine is not None else None
        self.first_error = self.stopped_by or self.first_error
        # A call that was stopped in flight has an outcome, but not one anybody would call an end.
        cut_off = stopped is not None and self.progress.unknown > 0
        ended = self.progress.ended >= self.progress.total and not cut_off
        extra: dict[str, Any] = {
            STATE_KEY: FINISHED if ended else STOPPED,
            STOP_KEY: None if ended else stopped,
        }
        if engine is not None:
            drift = engine.accounts.drift.total
            extra[DRIFT_KEY] = self.folder.manifest.extra.get(DRIFT_KEY, 0) + drift
            if drift:
                log.info("%s", explained(drift))
        made = self.progress.ended - self.progress.cached
        if self.progress.done and self.progress.seconds and engine is not None and made:
            busy = self.progress.seconds * sum(lane.most_in_flight for lane in engine.lanes)
            extra[LATENCY_KEY] = round(1000 * busy / made, 1)
        self._note(extra)

    def _note(self, extra: dict[str, Any]) -> None:
        self.folder.update_manifest(extra={**self.folder.manifest.extra, **extra})

    def _close(self) -> None:
        if self.engine is not None and self.stopped_by is not None:
            words = f"stopped ({self.engine.stopped_because}): {self.stopped_by}"
            say(words, shown=bool(self.options.progress))
        if words := self.progress.in_vain():
            log.warning("%s; run.failed shows them", words)


def _close(writer: RunWriter, filler: Filler | None) -> None:
    try:
        writer.close()
    finally:
        if filler is not None:
            filler.close()
