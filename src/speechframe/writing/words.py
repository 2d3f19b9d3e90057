"""Text for people: numbers with nouns, and texts without characters that control a terminal."""

import re

# Control characters except tab and line feed, line separators, direction overrides and surrogates.
_UNPRINTABLE_CHARACTERS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

# An engine's version and those of its additions, such as "-1.52.0+4.japanese" after the engine's name.
_ENGINE_VERSION = re.compile(r"-\d[\w.]*(?:\+\d[\w.]*)*")


def format_count(number: float, one: str, many: str = "") -> str:
    """Return a number with its noun. `one` is the singular, and `many` the plural (default: `one` with an s).

    Examples
    --------
    >>> format_count(1, "row"), format_count(2_000, "row"), format_count(1.5, "credit")
    ('1 row', '2,000 rows', '1.5 credits')
    >>> format_count(2, "retry", "retries")
    '2 retries'
    """
    digits = f"{number:,}" if isinstance(number, int) else f"{number:,.10g}"
    return f"{digits} {one if number == 1 else many or f'{one}s'}"


def shorten_service(service: str) -> str:
    """Return the name of a service without the versions of the engines of a local service.

    Examples
    --------
    >>> shorten_service("local/espeak-1.52.0+4.japanese+kokoro-1.0+2"), shorten_service("faulty-0")
    ('local/espeak+kokoro', 'faulty-0')
    """
    return _ENGINE_VERSION.sub("", service) if service.startswith("local/") else service


def replace_unprintable(text: str) -> str:
    r"""Return a text in which each character that could control a terminal is replaced by U+FFFD.

    Tabs and line feeds are kept, and also joiners, which are part of some scripts and emoji.

    Examples
    --------
    >>> replace_unprintable("\x1b[2Jdone\u202e"), replace_unprintable("two\nlines")
    ('\ufffd[2Jdone\ufffd', 'two\nlines')
    """
    return text if text.isascii() and text.isprintable() else _UNPRINTABLE_CHARACTERS.sub("\ufffd", text)


def escape_unprintable(json_text: str) -> str:
    r"""Escape each character of a JSON text that could control a terminal. The JSON values stay the same.

    Examples
    --------
    >>> escape_unprintable('"done\u202e"')
    '"done\\u202e"'
    """
    return _UNPRINTABLE_CHARACTERS.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)
