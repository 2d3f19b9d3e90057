"""Rule-based translation with the pairs of ``apertium``, where that command is on the machine."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from functools import lru_cache

from speechframe.engines.base import Quality, TranslationPair
from speechframe.engines.translation_text import has_letters
from speechframe.errors import EngineError
from speechframe.settings.hidden import environment_without_keys
from speechframe.spec import locales

__all__ = ["ApertiumTranslator"]

_COMMAND = "apertium"
_LIST_S = 20.0
_BASE_S, _PER_CHARACTER_S = 15.0, 0.01

# A mode is named by two languages in ISO 639-1 or -3, the target's region behind it; others are variants.
_MODE = re.compile(r"([a-z]{2,3})-([a-z]{2,3})(?:_([A-Z]{2}))?")

_ROUGH = frozenset({("en", "es")})
"""Pairs whose translations were looked at and are bad."""

# Apertium's stream: these are its signs, and what stands in brackets passes through.
_SIGNS = re.compile(r"[\\^$/@<>{}\[\]]")
_BLANKS = re.compile(r"[^\S ]+[ \t]*|  +")
_UNREADABLE = re.compile(r"\\(.)|\[((?:[^\[\]\\]|\\.)*+)\]", re.DOTALL)
_END = ".[]"
"""The end of a sentence that the text does not have, as apertium's own deformatter writes it."""


class ApertiumTranslator:
    """Translates by rules: what `apertium -l` lists, one process a call.

    Unknown words come through as they are and without marks.
    """

    name = "apertium"

    @property
    def version(self) -> str:
        """The version of apertium.

        Raises
        ------
        EngineError
            When it is not on the machine, or has no pair.
        """
        if not _modes():
            raise EngineError("apertium is not on this machine, or has no pair: apt install apertium-all-dev")
        return _version()

    def pairs(self) -> Sequence[TranslationPair]:
        """Return every direction that is installed; none without apertium."""
        return tuple(_modes())

    def translate(self, texts: Sequence[str], pair: TranslationPair) -> list[str]:
        """Return the translations in order; texts without a letter come back as they are.

        Parameters
        ----------
        texts
            What is to be translated; lines and whitespace stay.
        pair
            One of :meth:`pairs`.

        Raises
        ------
        EngineError
            For a pair that is not installed, or when the command fails or takes too long.
        """
        mode = _modes().get(pair)
        if mode is None:
            raise EngineError(f"apertium has no pair from {pair.source} to {pair.target}")
        done = list(texts)
        wanted = [index for index, text in enumerate(texts) if has_letters(text)]
        if not wanted:
            return done
        said = _translated([texts[index] for index in wanted], mode)
        if said is None:
            # The rules moved or dropped a separator: one text a process cannot lose any.
            said = [_only(_translated([texts[index]], mode)) for index in wanted]
        for index, words in zip(wanted, said, strict=True):
            done[index] = words
        return done


def _translated(texts: Sequence[str], mode: str) -> list[str] | None:
    """Return the translations of texts that went through one process; None when they cannot be told apart."""
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
        raise EngineError("apertium gave back something else than the translation")
    return said[0]


def _separator(number: int) -> str:
    return f"[\nspeechframe:{number}\n]"


def _deformatted(text: str) -> str:
    """Return a text as apertium's stream has it: signs escaped, lines and runs of blanks in brackets."""
    pieces = []
    place = 0
    for match in _BLANKS.finditer(text):
        pieces += [_SIGNS.sub(r"\\\g<0>", text[place : match.start()]), f"[{match[0]}]"]
        place = match.end()
    return "".join([*pieces, _SIGNS.sub(r"\\\g<0>", text[place:])])


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
    """Return every pair and the mode it is called by; there is no command that tells when that changes."""
    if shutil.which(_COMMAND) is None:
        return {}
    try:
        lines = _run([_COMMAND, "-l"], "", _LIST_S).split()
    except EngineError:
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
    # The command is a script that starts a pipeline: all of it ends with its group.
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
        raise EngineError(f"apertium cannot be started: {error.strerror}") from None
    try:
        answer, _ = process.communicate(words.encode(), timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise EngineError(f"apertium took longer than {limit_s:.0f} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        raise EngineError(f"apertium ended with status {process.returncode}")
    return answer.decode(errors="replace")
