"""The verbs, which are the public functions that make something: `generate`, `translate`, `dub` and more.

Each verb is a file with a function of the same name. The file of a verb that makes a run also has its
backend, the class that turns rows into calls and answers into records.
"""

from collections.abc import Mapping
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from speechframe.backends.service import ServiceBackend
    from speechframe.verbs.transcribe import TranscribeBackend


class Verb(NamedTuple):
    """A verb that makes a run. A command of the same name runs it.

    `summary` is the line of the command in ``speechframe --help``. `backend_name` is the name of the class of
    its backend, with the module in :mod:`speechframe.verbs`. `needs_service` is False if the verb sends
    nothing to a service.
    """

    summary: str
    backend_name: str
    needs_service: bool = True

    def backend(self) -> "type[ServiceBackend | TranscribeBackend]":
        """Import the verb's module, and return its class of backend.

        The import is slow, because the module loads Arrow and the HTTP client. So help pages do not call this
        method.
        """
        found: type[ServiceBackend | TranscribeBackend] = resolve_name(f"{__name__}.{self.backend_name}")
        return found


RUN_VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "generate": Verb("Speak each row of a table.", "generate:GenerateBackend"),
        "translate": Verb(
            "Translate each row of a table into other languages.", "translate:TranslateBackend"
        ),
        "change_voice": Verb(
            "Convert each clip of a table to another voice.", "change_voice:ChangeVoiceBackend"
        ),
        "dub": Verb("Dub each media file of a table into other languages.", "dub:DubBackend"),
        "transcribe": Verb(
            "Recognise the words of each clip of a table.",
            "transcribe:TranscribeBackend",
            needs_service=False,
        ),
    }
)
"""The verbs that make runs, by name. The commands and :func:`resume` use this table."""
