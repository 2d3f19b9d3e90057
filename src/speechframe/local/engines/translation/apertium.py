"""Translate by rules with the command ``apertium``, if it is installed."""

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
from speechframe.settings.hidden import copy_environment_without_keys
from speechframe.spec import locales
from speechframe.spec.placeholders import find_code

_COMMAND = "apertium"
_LIST_TIMEOUT_S = 20.0
"""Timeout of the commands that list pairs or print the version."""
_BASE_TIMEOUT_S, _CHARACTER_TIMEOUT_S = 15.0, 0.01
"""Timeout of a translation in seconds, and the seconds that each character adds to the timeout."""

# The name of a mode (an installed direction of translation) has two ISO 639-1 or -3 codes and perhaps the
# region of the target. Modes with other names are variants, which are ignored.
_MODE_PATTERN = re.compile(r"([a-z]{2,3})-([a-z]{2,3})(?:_([A-Z]{2}))?")

_ROUGH_PAIRS = frozenset({("en", "es")})
"""Pairs, source and target, that we tested and found bad."""

# Characters with a meaning in the stream format of apertium. Text in square brackets is not translated.
_SPECIAL_PATTERN = re.compile(r"[\\^$/@<>{}\[\]]")
# Whitespace to protect: everything except single spaces.
_BLANK_PATTERN = re.compile(r"[^\S ]+[ \t]*|  +")
# An escaped character, or text in square brackets.
_ESCAPED_PATTERN = re.compile(r"\\(.)|\[((?:[^\[\]\\]|\\.)*+)\]", re.DOTALL)
_TEXT_END = ".[]"
"""The mark that apertium's own deformatter adds at the end of a text."""


class ApertiumTranslator:
    """A translator by rules, for the pairs that `apertium -l` lists.

    A call starts one process, or one for each text if apertium loses the separators between texts. Unknown
    words stay unchanged, without apertium's asterisks.
    """

    name = "apertium"
    licence = "GPL"

    @property
    def version(self) -> str:
        """The version of apertium.

        Raises
        ------
        EngineFault
            apertium is not installed, or has no pair.
        """
        if not _list_modes():
            raise EngineFault("apertium is not on this machine, or has no pair: apt install apertium-all-dev")
        return _find_version()

    def pairs(self) -> Sequence[TranslationPair]:
        """Return each installed pair, by direction. The result is empty if apertium is not installed."""
        return tuple(_list_modes())

    def translate(self, texts: Sequence[str], pair: TranslationPair) -> list[str]:
        """Return the translations in order. A text without a letter is returned unchanged.

        Parameters
        ----------
        texts
            The texts. Line breaks and other whitespace are kept.
        pair
            One of :meth:`pairs`.

        Raises
        ------
        EngineFault
            The pair is not installed, or the command fails or takes too long.
        """
        mode = _list_modes().get(pair)
        if mode is None:
            raise EngineFault(f"apertium has no pair from {pair.source} to {pair.target}")
        done = list(texts)
        wanted = [index for index, text in enumerate(texts) if has_letters(text)]
        if not wanted:
            return done
        said = _translate_batch([texts[index] for index in wanted], mode)
        if said is None:
            # The rules moved or removed a separator between texts. So translate each text in its own process.
            said = [_require_translation(_translate_batch([texts[index]], mode)) for index in wanted]
        for index, translation in zip(wanted, said, strict=True):
            done[index] = translation
        return done


def _translate_batch(texts: Sequence[str], mode: str) -> list[str] | None:
    """Translate texts in one process. Return None if a separator between texts was lost."""
    stream = "".join(
        _encode_stream(text) + _TEXT_END + _format_separator(number) for number, text in enumerate(texts)
    )
    limit_s = _BASE_TIMEOUT_S + _CHARACTER_TIMEOUT_S * len(stream)
    answer = _run_apertium([_COMMAND, "-u", "-f", "none", mode], stream, limit_s)
    found = []
    for number in range(len(texts)):
        translation, separator, answer = answer.partition(_format_separator(number))
        if not separator:
            return None
        found.append(_decode_stream(translation))
    return found


def _require_translation(translations: list[str] | None) -> str:
    if translations is None:
        raise EngineFault("apertium gave back something else than the translation")
    return translations[0]


def _format_separator(number: int) -> str:
    return f"[\nspeechframe:{number}\n]"


def _encode_stream(text: str) -> str:
    """Convert a text to apertium's stream format: special characters are escaped.

    Placeholders and unusual whitespace are put in brackets, so that they stay unchanged.
    """
    pieces = []
    position = 0
    for start, end in [*find_code(text), (len(text), len(text))]:
        for match in _BLANK_PATTERN.finditer(text, position, start):
            pieces += [_escape(text[position : match.start()]), f"[{match[0]}]"]
            position = match.end()
        pieces.append(_escape(text[position:start]))
        if start < end:
            pieces.append(f"[{_escape(text[start:end])}]")
        position = end
    return "".join(pieces)


def _escape(text: str) -> str:
    return _SPECIAL_PATTERN.sub(r"\\\g<0>", text)


def _decode_stream(stream: str) -> str:
    r"""Convert a part of apertium's stream back to text.

    Examples
    --------
    >>> _decode_stream("un \\$ y[\n\n]dos" + ".[]")
    'un $ y\n\ndos'
    """
    return _ESCAPED_PATTERN.sub(
        lambda match: match[1] if match[1] is not None else re.sub(r"\\(.)", r"\1", match[2]),
        stream.removesuffix(_TEXT_END),
    )


def _list_modes() -> dict[TranslationPair, str]:
    """Return each pair with its mode, the name for the command. Empty if the command fails."""
    if shutil.which(_COMMAND) is None:
        return {}
    try:
        return _read_modes()
    except EngineFault:
        return {}


@lru_cache(maxsize=1)
def _read_modes() -> dict[TranslationPair, str]:
    """Read the list of modes once in a process. A failure raises EngineFault and is not cached."""
    return dict(_parse_modes(_run_apertium([_COMMAND, "-l"], "", _LIST_TIMEOUT_S).split()))


def _parse_modes(lines: Sequence[str]) -> Iterator[tuple[TranslationPair, str]]:
    for mode in lines:
        match = _MODE_PATTERN.fullmatch(mode)
        if match is None:
            continue
        try:
            source, language = (
                locales.shorten_language_code(match[1]),
                locales.shorten_language_code(match[2]),
            )
            target = locales.normalise(f"{language}-{match[3]}") if match[3] else language
        except ValueError:
            continue
        quality = Quality.ROUGH if (source, language) in _ROUGH_PAIRS else Quality.RULES
        yield TranslationPair(source, target, quality), mode


@lru_cache(maxsize=1)
def _find_version() -> str:
    found = re.search(r"\d+(?:\.\d+)+", _run_apertium([_COMMAND, "-V"], "", _LIST_TIMEOUT_S))
    return found[0] if found else "unknown"


def _run_apertium(command: Sequence[str], stdin_text: str, limit_s: float) -> str:
    # The command is a script that starts a pipeline, so on a timeout kill its whole process group.
    try:
        process = subprocess.Popen(  # noqa: S603 - the command is constant, and apertium listed the mode
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**copy_environment_without_keys(), "LC_ALL": "C.UTF-8"},
        )
    except OSError as error:
        raise EngineFault(f"apertium cannot be started: {error.strerror}") from None
    try:
        answer, _ = process.communicate(stdin_text.encode(), timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise EngineFault(f"apertium took longer than {limit_s:.0f} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        raise EngineFault(f"apertium ended with status {process.returncode}")
    return answer.decode(errors="replace")
