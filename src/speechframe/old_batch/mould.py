"""Rows that differ in nothing but their text: what their calls have in common is worked out once.

Nearly all rows of a table are alike in voice, format and every other option.
To check and to write out all of it for each of them was most of the time that
planning took, and a run plans its rows twice.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from json import JSONEncoder
from typing import Any

from speechframe.old_batch.operation import Checked, KeyBegun, Planned, key_of
from speechframe.old_client import Call
from speechframe.spec.billing import billed_characters, speech_millicredits
from speechframe.spec.speech import GenerateRequest

_MOST_KEPT = 1024
"""Moulds at a time: memory does not grow with rows."""

# Written as the whole is, because these bytes enter request keys.
_written = JSONEncoder(ensure_ascii=False).encode
_TEXT = b'"text":'


@dataclass(frozen=True, slots=True)
class Mould:
    """A call with its text left open.

    Parameters
    ----------
    request
        The request, with any text.
    key
        Its request key, up to the content.
    content, body
        What is asked for and what is sent, before and after the text.
    take, voice_id, locale, model, format
        As in :class:`Planned`.
    note
        What was changed about the call.
    """

    request: GenerateRequest
    key: KeyBegun
    content: tuple[bytes, bytes]
    body: tuple[bytes, bytes]
    take: int
    voice_id: str
    locale: str | None
    model: str
    format: str
    note: str | None

    def filled(self, text: str) -> Checked:
        """Return the call with a text that has no fault."""
        written, characters = _written(text).encode(), billed_characters(text)
        (before, after), (body_before, body_after) = self.content, self.body
        request = self.request.model_copy(update={"text": text})
        planned = Planned(
            request_key=key_of(self.key, before + written + after),
            take=self.take,
            call=Call("generate", request, body_before + written + body_after, take=self.take),
            characters=characters,
            millicredits=speech_millicredits(characters),
            text=text,
            voice_id=self.voice_id,
            locale=self.locale,
            model=self.model,
            format=self.format,
        )
        return Checked(planned, note=self.note)


def around_text(request: bytes, text: str) -> tuple[bytes, bytes]:
    r"""Return what stands before and after the text of a request that is written as JSON.

    Examples
    --------
    >>> around_text(b'{"style":"\\"text\\":","text":"Hi","voiceId":"nora"}', "Hi")
    (b'{"style":"\\"text\\":","text":', b',"voiceId":"nora"}')
    """
    # Inside of values JSON escapes every quote. The words of a dictionary are names as well; in the order of
    # names they stand before.
    before, name, after = request.rpartition(_TEXT)
    return before + name, after[len(_written(text).encode()) :]


class Moulds:
    """The moulds of one operation, by the values that their rows have in common."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Mould] = {}

    @staticmethod
    def name_of(values: Mapping[str, Any], take: int) -> Hashable:
        """Return what rows have in common that differ in nothing but their text; None for a row by itself.

        Parameters
        ----------
        values
            Argument to value.
        take
            0, or the number of a later take.
        """
        # A length that is asked for is hardly that of another row. It alone may be -0.0, too,
        # which equals 0.0 but is written otherwise.
        if "audio_duration" in values:
            return None
        options = [item for item in values.items() if item[0] != "text"]
        # 1, 1.0 and True are equal, and not all of them are right.
        name = (take, *options, *[type(value) for _, value in options])
        try:
            hash(name)
        except TypeError:
            return None  # a mapping or list, which may change
        return name

    def get(self, name: Hashable) -> Mould | None:
        """Return the mould with a name."""
        return self._kept.get(name)

    def keep(self, name: Hashable, mould: Mould) -> None:
        """Keep a mould, unless it is of a row by itself."""
        if name is None:
            return
        if len(self._kept) >= _MOST_KEPT:
            # So many ways of speaking, one after the other: whatever is kept, the next row may want another.
            self._kept.clear()
        self._kept[name] = mould
