"""Words for people. Numbers get their nouns, and texts of others do nothing to a terminal."""

import re

# Control characters other than tab and line feed, line separators, direction overrides, surrogates.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def counted(number: float, one: str, many: str = "") -> str:
    """Return a number with its noun. `many` is `one` with an s by default.

    Examples
    --------
    >>> counted(1, "row"), counted(2_000, "row"), counted(2, "retry", "retries"), counted(1.5, "credit")
    ('1 row', '2,000 rows', '2 retries', '1.5 credits')
    """
    digits = f"{number:,}" if isinstance(number, int) else f"{number:,.10g}"
    return f"{digits} {one if number == 1 else many or f'{one}s'}"


def printable(text: str) -> str:
    r"""Return `text` with U+FFFD for each character that does something to a terminal.

    Tabs and line feeds stay. So do joiners, without which some scripts and emoji are another text.

    Examples
    --------
    >>> printable("\x1b[2Jdone\u202e"), printable("two\nlines")
    ('\ufffd[2Jdone\ufffd', 'two\nlines')
    """
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub("\ufffd", text)


def escaped(json_text: str) -> str:
    r"""Return JSON with each such character escaped. Programs read the same values.

    Examples
    --------
    >>> escaped('"done\u202e"')
    '"done\\u202e"'
    """
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)
