"""The verbs, which are the things that people do with a table.

A verb is a file with a function of the same name. The file of a verb that makes a run also has its backend.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from speechframe.backends.service import ServiceBackend
    from speechframe.verbs.transcribe import TranscribeBackend


class Verb(NamedTuple):
    """A verb that makes a run. It is also a command.

    `summary` is the line of the command in ``speechframe --help``. `backend` imports the verb's module and
    returns the class of its backend. The module loads Arrow and the web client, so help pages do not call it.
    `needs_service` is False if the verb sends nothing to a service.
    """

    summary: str
    backend: "Callable[[], type[ServiceBackend | TranscribeBackend]]"
    needs_service: bool = True


def _generate() -> "type[ServiceBackend]":
    from speechframe.verbs.generate import GenerateBackend

    return GenerateBackend


def _translate() -> "type[ServiceBackend]":
    from speechframe.verbs.translate import TranslateBackend

    return TranslateBackend


def _change_voice() -> "type[ServiceBackend]":
    from speechframe.verbs.change_voice import ChangeVoiceBackend

    return ChangeVoiceBackend


def _dub() -> "type[ServiceBackend]":
    from speechframe.verbs.dub import DubBackend

    return DubBackend


def _transcribe() -> "type[TranscribeBackend]":
    from speechframe.verbs.transcribe import TranscribeBackend

    return TranscribeBackend


VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "generate": Verb("Speak each row of a table.", _generate),
        "translate": Verb("Translate each row of a table into other languages.", _translate),
        "change_voice": Verb("Convert each clip of a table to another voice.", _change_voice),
        "dub": Verb("Dub each media file of a table into other languages.", _dub),
        "transcribe": Verb("Recognise the words of each clip of a table.", _transcribe, needs_service=False),
    }
)
"""The verbs that make runs, by name. Commands and :func:`resume` take the verbs from this table."""
