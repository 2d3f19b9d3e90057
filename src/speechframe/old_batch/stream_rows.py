"""Rows of `generate` that are streamed: each a stream of falcon-2 that is collected whole (section 2.2)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from speechframe.old_batch.catalogue import VoiceBook
from speechframe.old_batch.operation import (
    Checked,
    Context,
    Planned,
    Service,
    Single,
    Textual,
    request_key,
    spoken_record,
)
from speechframe.old_batch.speech_fields import ARGUMENTS, voice_in
from speechframe.old_batch.truth import Truth
from speechframe.old_client import Spoken
from speechframe.old_client.whole import whole_call
from speechframe.old_store import Record
from speechframe.spec.billing import billed_characters, generate_millicredits
from speechframe.spec.check import FieldProblem, check, shown
from speechframe.spec.limits import Pool
from speechframe.spec.speech import Model, StreamRequest
from speechframe.wire.stream import encode_stream

MODEL = Model.FALCON_2

_FIELDS = StreamRequest.wire_names()
_STREAMED = {argument: name for argument, name in ARGUMENTS.items() if name in _FIELDS.values()}
_VARIATION = StreamRequest.model_fields["variation"].get_default()


@dataclass
class StreamOperation(Single, Textual):
    """How a row becomes a streaming call and its audio a record.

    Parameters
    ----------
    book
        The voices of falcon-2.
    service
        The service's identity.
    """

    book: VoiceBook
    service: str
    name: str = "generate"
    pool: str = Pool.STREAMING
    arguments: Mapping[str, str] = field(default_factory=lambda: ARGUMENTS)
    data_arguments: frozenset[str] = frozenset({"text"})
    remark: str | None = (
        f"{MODEL.value} is streamed: no word durations, no balance, billed characters are computed"
    )

    @classmethod
    def on(cls, service: Service) -> Self:
        """Return the verb as it is with a service."""
        return cls(service.book, service.identity)

    @staticmethod
    def looker() -> Truth:
        """Return what doubts spoken answers."""
        return Truth()

    def check(self, values: Mapping[str, Any], take: int) -> Checked:
        """Return the call of one row, or everything that is wrong with it."""
        lacking = [
            FieldProblem(
                ARGUMENTS[argument],
                f"is nothing that streams of {MODEL.value} have",
                shown(value),
                f"leave it out, or model={Model.GEN2.value!r}",
            )
            for argument, value in values.items()
            if argument in ARGUMENTS and argument not in _STREAMED
        ]
        data = {name: values[argument] for argument, name in _STREAMED.items() if argument in values}
        checked = check(StreamRequest, {**data, "model": MODEL})
        voice, found = voice_in(self.book, data)
        problems = (*lacking, *checked.problems, *found)
        if problems or checked.value is None:
            return Checked(None, problems)
        return self._plan(checked.value, voice or "", take)

    def _plan(self, request: StreamRequest, voice: str, take: int) -> Checked:
        # What the model ignores is not sent: rows that differ in nothing else are one call.
        request = request.model_copy(update={"voice_id": voice, "variation": _VARIATION})
        call = whole_call(request)
        key = request_key(self.name, encode_stream(call.request), model=MODEL, take=0, service=self.service)
        planned = Planned(
            request_key=key,
            take=0,
            call=call,
            characters=billed_characters(request.text),
            millicredits=generate_millicredits(request.text),
            text=request.text,
            voice_id=request.voice_id,
            locale=request.locale or request.multi_native_locale or self.book.locale_of(request.voice_id),
            model=MODEL.value,
            format=request.format.value,
        )
        # Nothing varies: every take is the first one, and costs nothing more.
        return Checked(planned, note="retake_identical" if take else None)

    @staticmethod
    def records(planned: Planned, answer: Spoken, context: Context) -> tuple[Record]:
        """Return what is kept of an answer: nobody said when which word is heard."""
        return (replace(spoken_record(planned, answer, context), word_durations=None),)
