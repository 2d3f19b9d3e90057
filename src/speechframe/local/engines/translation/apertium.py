"""Rule-based translation with the pairs of ``apertium``, if that command is on the machine."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from functools import lru_cache

from speechframe.engines.base import Quality, TranslationPair
from speechframe.errors import EngineFault
from speechframe.local.engines.translation.text import has_letters
from speechframe.settings.hidden import environment_without_keys
from speechframe.spec import locales
from speechframe.spec.placeholders import find

__all__ = ["ApertiumTranslator"]

_COMMAND = "apertium"
_LIST_S = 20.0
_BASE_S, _PER_CHARACTER_S = 15.0, 0.01

# A mode is named by two languages in ISO 639-1 or -3, with the target's region. Other modes are variants.
_MODE = re.compile(r"([a-z]{2,3})-([a-z]{2,3})(?:_([A-Z]{2}))?")

_ROUGH = frozenset({("en", "es")})
"""Pairs that we examined and found bad."""

# The signs of apertium's stream. Text in brackets passes through.
_SIGNS = re.compile(r"[\\^$/@<>{}\[\]]")
_BLANKS = re.compile(r"[^\S ]+[ \t]*|  +")
_UNREADABLE = re.compile(r"\\(.)|\[((?:[^\[\]\\]|\\.)*+)\]", re.DOTALL)
_END = ".[]"
"""The end that apertium's own deformatter adds to a sentence."""


class ApertiumTranslator:
    """A translator by rules, for the pairs that `apertium -l` lists. Each call starts one process.

    Unknown words pass unchanged and without marks.
    """

    name = "apertium"
    licence = "GPL"

    @property
    def version(self) -> str:
        """The version of apertium.

        Raises
        ------
        EngineFault
            It is not on the machine, or has no pair.
        """
        if not _modes():
            raise EngineFault("apertium is not on this machine, or has no pair: apt install apertium-all-dev")
        return _version()

    def pairs(self) -> Sequence[TranslationPair]:
        """Return every direction that is installed, and none without apertium."""
        return tuple(_modes())

    def translate(self, texts: Sequence[str], pair: TranslationPair) -> list[str]:
        """Return the translations in order. A text without a letter is returned unchanged.

        Parameters
        ----------
        texts
            The texts. Lines and whitespace stay.
        pair
            One of :meth:`pairs`.

        Raises
        ------
        EngineFault
            The pair is not installed, or the command fails or takes too long.
        """
        mode = _modes().get(pair)
        if mode is None:
            raise EngineFault(f"apertium has no pair from {pair.source} to {pair.target}")
        done = list(texts)
        wanted = [index for index, text in enumerate(texts) if has_letters(text)]
        if not wanted:
            return done
        said = _translated([texts[index] for index in wanted], mode)
        if said is None:
            # The rules moved or dropped a separator. With one text a process there is no separator.
            said = [_only(_translated([texts[index]], mode)) for index in wanted]
        for index, words in zip(wanted, said, strict=True):
            done[index] = words
        return done


def _translated(texts: Sequence[str], mode: str) -> list[str] | None:
    """Return the translations of texts by one process; None if the separators between them were lost."""
    stream = "".join(_deformatted(text) + _END + _separator(number) for number, text in enumerate(texts))
    limit_s = _BASE_S + _PER_CHARACTER_S * len(stream)
    answer = _run([_COMMAND, "-u", "-f", "none", mode], stream, limit_s)
    found = []
    for number in range(len(texts)):
        words, separator, answer = answer.partition(_separator(number))
        if not separator:
            return None
        found.append(_reformatted(words))
    return found


def _only(said: list[str] | None) -> str:
    if said is None:
        raise EngineFault("apertium gave back something else than the translation")
    return said[0]


def _separator(number: int) -> str:
    return f"[\nspeechframe:{number}\n]"


def _deformatted(text: str) -> str:
    """Return a text in the form of apertium's stream. Signs are escaped, code and blanks are in brackets."""
    pieces = []
    place = 0
    for start, end in [*find(text), (len(text), len(text))]:
        for match in _BLANKS.finditer(text, place, start):
            pieces += [_escaped(text[place : match.start()]), f"[{match[0]}]"]
            place = match.end()
        pieces.append(_escaped(text[place:start]))
        if start < end:
            pieces.append(f"[{_escaped(text[start:end])}]")
        place = end
    return "".join(pieces)


def _escaped(words: str) -> str:
    return _SIGNS.sub(r"\\\g<0>", words)


def _reformatted(stream: str) -> str:
    r"""Return the text of a piece of stream.

    Examples
    --------
    >>> _reformatted("un \\$ y[\n\n]dos" + ".[]")
    'un $ y\n\ndos'
    """
    return _UNREADABLE.sub(
        lambda match: match[1] if match[1] is not None else re.sub(r"\\(.)", r"\1", match[2]),
        stream.removesuffix(_END),
    )


@lru_cache(maxsize=1)
def _modes() -> dict[TranslationPair, str]:
    """Return every pair with its mode. The list is read once, because no command reports changes."""
    if shutil.which(_COMMAND) is None:
        return {}
    try:
        lines = _run([_COMMAND, "-l"], "", _LIST_S).split()
    except EngineFault:
        return {}
    return dict(_read(lines))


def _read(lines: Sequence[str]) -> Iterator[tuple[TranslationPair, str]]:
    for mode in lines:
        match = _MODE.fullmatch(mode)
        if match is None:
            continue
        try:
            source, language = locales.shortest(match[1]), locales.shortest(match[2])
            target = locales.normalise(f"{language}-{match[3]}") if match[3] else language
        except ValueError:
            continue
        quality = Quality.ROUGH if (source, language) in _ROUGH else Quality.RULES
        yield TranslationPair(source, target, quality), mode


@lru_cache(maxsize=1)
def _version() -> str:
    found = re.search(r"\d+(?:\.\d+)+", _run([_COMMAND, "-V"], "", _LIST_S))
    return found[0] if found else "unknown"


def _run(command: Sequence[str], words: str, limit_s: float) -> str:
    # The command is a script that starts a pipeline, so end its whole group.
    try:
        process = subprocess.Popen(  # noqa: S603 - the command is ours, a mode is one that it listed
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**environment_without_keys(), "LC_ALL": "C.UTF-8"},
        )
    except OSError as error:
        raise EngineFault(f"apertium cannot be started: {error.strerror}") from None
    try:
        answer, _ = process.communicate(words.encode(), timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise EngineFault(f"apertium took longer than {limit_s:.0f} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        raise EngineFault(f"apertium ended with status {process.returncode}")
    return answer.decode(errors="replace")
