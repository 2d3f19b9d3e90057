"""Handle the requests of the faulty test service: checks, faults, bills and answers.

A call (a request for speech or translations) passes these checks in order: key, body, region, cap and rate.
Then the service chooses the step of the call: a fault, an error status, or a good answer. The call is in
flight during its latency. After the latency the service writes the bill to disk and answers. If a client
disconnects early, the call continues nevertheless, as in a remote service.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qs

from pydantic import ValidationError

from speechframe.errors import SettingsError
from speechframe.spec.chosen import IDEMPOTENCY_SECONDS, RETRY_AFTER_HEADER, TAKE_HEADER
from speechframe.spec.codes import Status
from speechframe.spec.endpoints import get_endpoint
from speechframe.spec.limits import Pool
from speechframe.spec.speech import VoicesQuery
from speechframe.testing import answers, plan, spoken
from speechframe.testing.accounts import Account, Bank, OtherBodyError, QuotaUsedUpError
from speechframe.testing.audio_urls import AUDIO_PATH, answer_audio_request
from speechframe.testing.books import Counters, InFlightMeter
from speechframe.testing.journal import BillsFile
from speechframe.testing.knobs import Knobs
from speechframe.testing.plan import Fault, FaultTable, Step
from speechframe.testing.protocol import (
    API_KEY_PREFIX,
    IDEMPOTENCY_PREFIX,
    TAKE_PREFIX,
    Connection,
    HttpRequest,
)
from speechframe.testing.wanted import (
    BadRequestError,
    ParsedSpeechRequest,
    ParsedTranslationRequest,
    read_request,
    read_translation,
)
from speechframe.wire.errors import read_retry_after_s

BOOKS_PATH = "/books"
CONTROL_PATH = "/control"

_ENDPOINTS = [
    get_endpoint(name) for name in ("generate", "stream", "translate", "voices", "limits", "health")
]
_GENERATE, _STREAM, _TRANSLATE, _VOICES, _, _HEALTH = _ENDPOINTS
_CALL_PATHS = frozenset({_GENERATE.path, _STREAM.path, _TRANSLATE.path})
_METHOD_BY_PATH = {endpoint.path: endpoint.method for endpoint in _ENDPOINTS} | {
    BOOKS_PATH: "GET",
    CONTROL_PATH: "POST",
}
_STATUSES_WITH_WAIT = frozenset({Status.TOO_MANY_REQUESTS, Status.SERVICE_UNAVAILABLE})


def make_identity(seed: int) -> str:
    """Return the identity that the page of limits contains. Services with the same seed have the same one."""
    return f"faulty-{seed}"


@dataclass(slots=True)
class _HandledCall:
    """The state of one call in flight."""

    out: Connection
    region: str
    account: Account
    meter: InFlightMeter
    wanted: ParsedSpeechRequest | ParsedTranslationRequest
    step: Step
    mark: tuple[str, bytes] | None
    trace: str


class RequestHandler:
    """Handler of all requests to all regions of a service, in one event loop.

    Parameters
    ----------
    knobs
        Settings of the service at the start.
    data
        Folder of the journal (the file of bills).
    """

    def __init__(self, knobs: Knobs, data: Path) -> None:
        self._counters = Counters()
        self._bank = Bank(knobs.keys, knobs.regions, knobs.cap, BillsFile(data), self._counters)
        self._cap = knobs.cap
        self._request_count = 0
        self._latency_count = 0
        self._refusal_count = 0
        self._attempts: defaultdict[int, int] = defaultdict(int)
        self._played_steps: defaultdict[int, int] = defaultdict(int)
        self._first_call_s: float | None = None
        self._cap_timers: list[asyncio.TimerHandle] = []
        self._urls: Mapping[str, str] = {}
        self._knobs = knobs
        self._faults = FaultTable(knobs.faults)

    def open(self, urls: Mapping[str, str]) -> None:
        """Set the address of each region. Call this before the first request, because audio URLs need it."""
        self._urls = urls

    def make_connection(self, region: str) -> Connection:
        """Return the asyncio protocol for a new connection to a region."""
        return Connection(lambda request, out: self._handle(request, out, region))

    # -- requests --------------------------------------------------------------------

    def _handle(self, request: HttpRequest, out: Connection, region: str) -> None:
        self._request_count += 1
        trace = f"{self._request_count:08x}"
        if request.path.startswith(AUDIO_PATH):
            out.reply(answer_audio_request(request.path, trace=trace))
            return
        method = _METHOD_BY_PATH.get(request.path)
        if method != request.method:
            status, message = (
                (404, "no such address") if method is None else (405, f"only {method} is answered")
            )
            out.reply(answers.make_error_answer(status, message, trace=trace))
            return
        account = self._bank.find_account(request.find_header(API_KEY_PREFIX))
        if request.path in _CALL_PATHS:
            self._start_call(request, out, region, account, trace)
        elif request.path == _HEALTH.path and self._knobs.limits_page:
            out.reply(answers.make_http_answer(200, [b'{"status": "ok"}'], trace=trace))
        elif account is None:
            out.reply(answers.make_error_answer(403, "the key is missing or wrong", trace=trace))
        else:
            out.reply(self._answer_keyed_request(request, region, account, trace))

    def _answer_keyed_request(self, request: HttpRequest, region: str, account: Account, trace: str) -> bytes:
        if request.path == BOOKS_PATH:
            books = self._counters.make_books(
                self._bank.group_meters(), self._bank.count_remaining_characters(self._knobs.quota)
            )
            return answers.make_http_answer(200, [json.dumps(books.to_json()).encode()], trace=trace)
        if request.path == CONTROL_PATH:
            return self._change_knobs(request, trace)
        if region in self._knobs.down_regions:
            return answers.make_error_answer(
                503, "the region is down", trace=trace, headers=self._make_wait_headers(None)
            )
        if request.path == _VOICES.path:
            return _answer_voices(request, trace)
        return self._answer_limits(region, account, trace)

    def _answer_limits(self, region: str, account: Account, trace: str) -> bytes:
        knobs = self._knobs
        if not knobs.limits_page:
            return answers.make_error_answer(404, "no such address", trace=trace)
        has_cap, quota = knobs.publish_cap and self._cap is not None, knobs.quota
        page = {
            "service": "speechframe",
            "identity": make_identity(knobs.seed),
            "region": region,
            "pools": dict.fromkeys(Pool, self._cap) if has_cap else {},
            "idempotency": knobs.idempotent,
            "idempotency_seconds": IDEMPOTENCY_SECONDS if knobs.idempotent else 0,
            "take_header": TAKE_HEADER if knobs.takes else None,
            "remaining_characters": None if quota is None else account.count_remaining_characters(quota),
        }
        return answers.make_http_answer(200, [json.dumps(page).encode()], trace=trace)

    # -- knobs -----------------------------------------------------------------------

    def _change_knobs(self, request: HttpRequest, trace: str) -> bytes:
        try:
            changes = json.loads(request.body)
            self._knobs = self._knobs.with_changes(changes)
        except (ValueError, TypeError, SettingsError) as error:
            return answers.make_error_answer(400, str(error), trace=trace)
        self._faults = FaultTable(self._knobs.faults)
        if "scripts" in changes:
            self._played_steps.clear()
        if "cap" in changes:
            self._set_cap(self._knobs.cap)
        if "cap_plan" in changes:
            self._plan_caps()
        return answers.make_http_answer(200, [b"{}"], trace=trace)

    def _set_cap(self, cap: int | None) -> None:
        self._cap = cap
        now_s = _read_clock_s()
        for meters in self._bank.group_meters().values():
            for meter in meters:
                meter.set_cap(cap, now_s)

    def _plan_caps(self) -> None:
        for timer in self._cap_timers:
            timer.cancel()
        self._cap_timers.clear()
        if self._first_call_s is not None:
            loop = asyncio.get_running_loop()
            self._cap_timers += [
                loop.call_at(self._first_call_s + after_s, self._set_cap, cap)
                for after_s, cap in self._knobs.cap_plan
            ]

    # -- a call for speech or translations ---------------------------------------------

    def _start_call(
        self, request: HttpRequest, out: Connection, region: str, account: Account | None, trace: str
    ) -> None:
        knobs = self._knobs
        now_s = _read_clock_s()
        if self._counters.count_call():
            self._first_call_s = now_s
            self._plan_caps()
        if account is None:
            self._refuse(out, 403, "the key is missing or wrong", trace)
            return
        try:
            wanted = self._read_wanted(request)
        except BadRequestError as bad:
            self._refuse(out, 400, str(bad), trace)
            return
        tag, asked = wanted.tag, (region, wanted.tag)
        self._counters.count_retry(asked, now_s)
        meter = account.meters[region]
        if region in knobs.down_regions:
            self._refuse(out, 503, "the region is down", trace, asked)
            return
        if meter.is_full or not (
            knobs.rate is None or account.take_rate_token(knobs.rate, knobs.burst, now_s)
        ):
            self._counters.refused += 1
            limit = f"{self._cap} in flight are allowed" if meter.is_full else f"{knobs.rate:g}/s are allowed"
            self._refuse(out, 429, limit, trace, asked)
            return
        step = self._choose_step(wanted.text, tag)
        if step is not plan.OK_STEP:
            self._counters.faults[step.name] += 1
        if step.status == Status.TOO_MANY_REQUESTS:
            # Send a planned 429 without the latency, because a real service does no work for a refused call.
            self._refuse(out, step.status, "played", trace, asked, step.retry_after)
            return
        key = request.find_header(IDEMPOTENCY_PREFIX) if knobs.idempotent else None
        mark = (key, wanted.content) if key else None
        meter.enter(now_s)
        self._counters.add_in_flight()
        self._latency_count += 1
        latency_s = knobs.latency.seconds_at(plan.draw(knobs.seed, "latency", self._latency_count))
        call = _HandledCall(out, region, account, meter, wanted, step, mark, trace)
        if latency_s:
            asyncio.get_running_loop().call_later(latency_s, self._finish_call, call)
        else:
            self._finish_call(call)

    def _read_wanted(self, request: HttpRequest) -> ParsedSpeechRequest | ParsedTranslationRequest:
        if request.path == _TRANSLATE.path:
            return read_translation(request.body, self._knobs.scripts)
        take = request.find_header(TAKE_PREFIX) if self._knobs.takes else None
        return read_request(request.body, take, is_stream=request.path == _STREAM.path)

    def _choose_step(self, text: str, tag: int) -> Step:
        """Return the next step of the text's script. Without a script, choose a step by `faults` and seed."""
        scripts = self._knobs.scripts
        script = scripts.get(text) or scripts.get(plan.EVERY_TEXT) if scripts else None
        if script:
            self._played_steps[tag] += 1
            return plan.get_scripted_step(script, self._played_steps[tag] - 1)
        if not self._faults:
            return plan.OK_STEP
        self._attempts[tag] += 1
        return self._faults.choose_step(plan.draw(self._knobs.seed, "fault", tag, self._attempts[tag]))

    def _finish_call(self, call: _HandledCall) -> None:
        step, wanted = call.step, call.wanted
        if step.status != Status.OK:
            self._end_in_flight(call)
            asked = call.region, wanted.tag
            self._refuse(call.out, step.status, "played", call.trace, asked, step.retry_after)
        elif step.fault is not None and not step.fault.billed:
            self._end_without_answer(call)
        elif self._bill_call(call):
            if step.fault in {Fault.RESET_AFTER, Fault.HANG_BILLED}:
                self._end_without_answer(call)
            else:
                self._answer_call(call)

    def _end_without_answer(self, call: _HandledCall) -> None:
        """End a call without an answer: reset its connection, or hold it until it is closed."""
        if call.step.fault in {Fault.RESET_BEFORE, Fault.RESET_AFTER}:
            self._end_in_flight(call)
            call.out.reset()
        else:
            call.out.hold(self._knobs.hang_s, lambda: self._end_in_flight(call))

    def _bill_call(self, call: _HandledCall) -> bool:
        """Bill the call. If the bill is impossible, refuse the call and return False."""
        wanted, quota = call.wanted, self._knobs.quota
        try:
            billed = {tag: round(n * self._knobs.billed_times) for tag, n in wanted.characters_of.items()}
            new = self._bank.pay(call.account, billed, quota=quota, mark=call.mark)
        except QuotaUsedUpError:
            left = call.account.count_remaining_characters(quota)
            message = f"the text has {wanted.characters} billed characters, and {left} are left"
            status = Status.PAYMENT_REQUIRED
        except OtherBodyError:
            message, status = "the idempotency key was used for another request", Status.BAD_REQUEST
        except OSError as full:
            message, status = str(full), Status.INTERNAL_SERVER_ERROR
        else:
            self._counters.repeats += not new
            return True
        self._end_in_flight(call)
        self._refuse(call.out, status, message, call.trace)
        return False

    def _answer_call(self, call: _HandledCall) -> None:
        fault = call.step.fault
        answer = self._make_answer(call)
        if fault is Fault.SLOW_BYTES:
            call.out.send_slowly(
                answer, self._knobs.slow_s, lambda whole: self._end_slow_answer(call, whole=whole)
            )
            return
        self._end_in_flight(call)
        if fault is Fault.TRUNCATED:
            call.out.send_and_close(answer[: len(answer) // 2])
            return
        self._count_answer()
        call.out.reply(answer)

    def _end_slow_answer(self, call: _HandledCall, *, whole: bool) -> None:
        self._end_in_flight(call)
        if whole:
            self._count_answer()

    def _count_answer(self) -> None:
        self._counters.answered += 1
        self._counters.count_answer(200)

    def _make_answer(self, call: _HandledCall) -> bytes:
        """Return the answer to a billed call, with the fault of its step."""
        wanted, fault, knobs = call.wanted, call.step.fault, self._knobs
        if isinstance(wanted, ParsedTranslationRequest):
            return spoken.answer_translate(wanted, fault, knobs.odd, knobs.billed_times, trace=call.trace)
        if wanted.is_stream:
            return spoken.answer_stream(wanted, fault, audio_bytes=knobs.audio_bytes, trace=call.trace)
        answer = spoken.answer_generate(
            wanted,
            fault,
            audio_bytes=knobs.audio_bytes,
            trace=call.trace,
            url=self._urls[call.region],
            remaining=call.account.count_remaining_characters(knobs.quota),
            used=call.account.used,
        )
        odd = knobs.odd.get(wanted.text)
        return spoken.change_answer(answer, odd, trace=call.trace) if odd else answer

    # -- refusals --------------------------------------------------------------------

    def _end_in_flight(self, call: _HandledCall) -> None:
        call.meter.leave(_read_clock_s())
        self._counters.in_flight -= 1

    def _refuse(
        self,
        out: Connection,
        status: int,
        message: str,
        trace: str,
        asked: tuple[str, int] | None = None,
        wait: str | None = None,
    ) -> None:
        self._counters.count_answer(status)
        headers = ""
        if wait is not None:
            headers = self._make_scripted_wait_header(asked, wait)
        elif status in _STATUSES_WITH_WAIT:
            headers = self._make_wait_headers(asked)
        out.reply(answers.make_error_answer(status, message, trace=trace, headers=headers))

    def _make_scripted_wait_header(self, asked: tuple[str, int] | None, value: str) -> str:
        """Return a `Retry-After` header with `value` from a script. The value need not be valid."""
        wait_s = read_retry_after_s({RETRY_AFTER_HEADER: value})
        if asked is not None and wait_s is not None:
            self._counters.set_wait(asked, _read_clock_s() + wait_s)
        return f"{RETRY_AFTER_HEADER}: {value}\r\n"

    def _make_wait_headers(self, asked: tuple[str, int] | None) -> str:
        """Return the headers with the waiting time, or nothing if the form has none.

        `asked` is the region and the tag of the text, or None. If it is set, record when the text may be sent
        again.
        """
        knobs, now_s = self._knobs, time.time()
        self._refusal_count += 1
        form = plan.choose_form(knobs.retry_after, plan.draw(knobs.seed, "form", self._refusal_count))
        value, wait_s = plan.make_retry_after(form, knobs.retry_after_s, now_s)
        if value is None:
            return ""
        if asked is not None:
            self._counters.set_wait(asked, _read_clock_s() + wait_s)
        # A client subtracts the Date header from a date in Retry-After, so both must use the same clock.
        return f"Date: {formatdate(now_s, usegmt=True)}\r\n{RETRY_AFTER_HEADER}: {value}\r\n"


def _read_clock_s() -> float:
    return asyncio.get_running_loop().time()


def _answer_voices(request: HttpRequest, trace: str) -> bytes:
    asked = parse_qs(request.query).get("model")
    try:
        query = VoicesQuery.model_validate({"model": asked[0]} if asked else {})
    except ValidationError:
        return answers.make_error_answer(400, "model: allowed are falcon-2 and gen2", trace=trace)
    return answers.make_http_answer(200, [answers.make_voice_listing(query.model)], trace=trace)
