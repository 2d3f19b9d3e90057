"""The verbs, which are the public functions that make something: `generate`, `translate`, `dub` and more.

Each verb is a file with a function of the same name. The file of a verb that makes a run also has its
backend, the class that turns rows into calls and answers into records.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from speechframe.backends.service import ServiceBackend
    from speechframe.verbs.transcribe import TranscribeBackend


class Verb(NamedTuple):
    """A verb that makes a run. A command of the same name runs it.

    `summary` is the line of the command in ``speechframe --help``. `backend` imports the verb's module and
    returns its class of backend. The import is slow, because the module loads Arrow and the HTTP client. So
    help pages do not call `backend`.
    `needs_service` is False if the verb sends nothing to a service.
    """

    summary: str
    backend: "Callable[[], type[ServiceBackend | TranscribeBackend]]"
    needs_service: bool = True


def _load_generate() -> "type[ServiceBackend]":
    from speechframe.verbs.generate import GenerateBackend

    return GenerateBackend


def _load_translate() -> "type[ServiceBackend]":
    from speechframe.verbs.translate import TranslateBackend

    return TranslateBackend


def _load_change_voice() -> "type[ServiceBackend]":
    from speechframe.verbs.change_voice import ChangeVoiceBackend

    return ChangeVoiceBackend


def _load_dub() -> "type[ServiceBackend]":
    from speechframe.verbs.dub import DubBackend

    return DubBackend


def _load_transcribe() -> "type[TranscribeBackend]":
    from speechframe.verbs.transcribe import TranscribeBackend

    return TranscribeBackend


RUN_VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "generate": Verb("Speak each row of a table.", _load_generate),
        "translate": Verb("Translate each row of a table into other languages.", _load_translate),
        "change_voice": Verb("Convert each clip of a table to another voice.", _load_change_voice),
        "dub": Verb("Dub each media file of a table into other languages.", _load_dub),
        "transcribe": Verb(
            "Recognise the words of each clip of a table.", _load_transcribe, needs_service=False
        ),
    }
)
"""The verbs that make runs, by name. The commands and :func:`resume` use this table."""
