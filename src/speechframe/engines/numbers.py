"""Find the numbers of a text that espeak-ng would misread, and write them in a form that it reads correctly.

espeak-ng joins the groups of digits of a number only if it expects the mark between them. It reads "3 000"
with a no-break space as "three zero zero zero". So the group marks are removed: "3000". The decimal mark
becomes the mark that espeak-ng expects, or a word.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from types import MappingProxyType

_SPACES = "\u00a0\u2007\u2008\u2009\u200a\u202f"
_APOSTROPHES = "'\u2019\u02bc"
_POINT, _COMMA, _ARABIC_POINT, _ARABIC_COMMA = ".", ",", "\u066b", "\u066c"
# All marks that may be between the digits of a number.
_DIGIT_MARKS = f"{_SPACES}{_APOSTROPHES}{_POINT}{_COMMA}{_ARABIC_POINT}{_ARABIC_COMMA}"
# The quantifiers are possessive, and a number begins only at the first digit of a run. So the time is linear
# for any text.
_MARKED_NUMBER = re.compile(rf"(?<!\d)\d++(?:[{_DIGIT_MARKS}]\d++)++")
_NUMBER_WITH_SPACES = re.compile(rf"(?<!\d)\d++(?:[ {_DIGIT_MARKS}]\d++)++")
_ANY_SPACE = re.compile(f"[ {_SPACES}]")
# Maps each space to a usual space, and each apostrophe to a straight apostrophe.
_COMMON_MARK = MappingProxyType(dict.fromkeys(_SPACES, " ") | dict.fromkeys(_APOSTROPHES, "'"))

# espeak-ng's names of languages.
_POINT_LANGUAGES = """
am ar bn cmn cy en es-419 fa fil ga gd gu he hi ja kn ko mi ml mr ms mt ne or pa si sw ta te th ur yue zh
"""
_LANGUAGES_WITH_POINT = frozenset(_POINT_LANGUAGES.split())
"""Languages that write 3.5 and 3,000 (Unicode CLDR). The others write 3,5 and 3.000 or 3 000."""
_ESPEAK_LANGUAGES_WITH_POINT = _LANGUAGES_WITH_POINT - {"es-419", "ms"} | {"af", "ka", "kk", "ky"}
"""Languages in which espeak-ng reads a point as the decimal mark. In all others, this mark is a comma."""
_DECIMAL_WORDS = MappingProxyType(
    {
        "be": "\u043a\u043e\u0441\u043a\u0430",
        "es-419": "punto",
        "ko": "\uc810",
        "sv": "komma",
        "uk": "\u043a\u043e\u043c\u0430",
        "uz": "butun",
        "yue": "\u9ede",
    }
)
"""Maps a language to the word for the decimal mark, if espeak-ng reads this mark wrongly or not at all."""
_GROUP_DIGITS = 3  # digits of a group, as in 1,234,567
_INDIAN_GROUP_DIGITS = 2  # digits of a group except the last, as in 12,34,567


def find_rewritten_numbers(text: str, language: str) -> Iterator[tuple[int, int, str]]:
    r"""Yield start, end and new form of each number that espeak-ng would misread.

    Parameters
    ----------
    text
        The text.
    language
        espeak-ng's name of the language without its family, such as ``fr`` or ``es-419``.

    Examples
    --------
    >>> [said for *_, said in find_rewritten_numbers("3\u202f000 or 12\u00a0500,75", "fr")]
    ['3000', '12500,75']
    >>> [said for *_, said in find_rewritten_numbers("1.234,5 and 12,34,567", "en")]
    ['1234.5', '1234567']
    """
    has_point = _is_in(language, _LANGUAGES_WITH_POINT)
    pattern = _MARKED_NUMBER if has_point else _NUMBER_WITH_SPACES
    for match in pattern.finditer(text):
        if text[max(0, match.start() - 1) : match.start()] == "+" and _ANY_SPACE.search(match.group()):
            continue  # a telephone number
        found = [(match, _rewrite_number(match.group(), language, has_point=has_point))]
        if found[0][1] is None and " " in match.group():
            # The spaces do not group digits, so they separate numbers. Look at each number alone.
            parts = _MARKED_NUMBER.finditer(text, match.start(), match.end())
            found = [(part, _rewrite_number(part.group(), language, has_point=has_point)) for part in parts]
        for number, new_form in found:
            if new_form not in {None, number.group()}:
                yield number.start(), number.end(), new_form


def _is_in(language: str, languages: frozenset[str]) -> bool:
    """Return whether a language, or the language without its region, is in a set."""
    return language in languages or ("-" in language and _remove_region(language) in languages)


def _remove_region(language: str) -> str:
    """Return a language without its region."""
    return language.partition("-")[0]


def _rewrite_number(number: str, language: str, *, has_point: bool) -> str | None:
    """Return the new form of a number, or None if its marks neither group digits nor begin a fraction."""
    parts = re.split(rf"([ {_DIGIT_MARKS}])", number)
    digits, marks = parts[::2], [_COMMON_MARK.get(mark, mark) for mark in parts[1::2]]
    decimal = _POINT if has_point else _COMMA
    groups = _count_group_marks(digits, marks, decimal, has_point=has_point)
    if not groups and (len(marks) != 1 or marks[0] not in {decimal, _ARABIC_POINT}):
        return None
    whole, rest = "".join(digits[: groups + 1]), digits[groups + 1 :]
    if not rest:
        return whole
    word = _DECIMAL_WORDS.get(language) or _DECIMAL_WORDS.get(_remove_region(language))
    if word:
        return f"{whole} {word} {' '.join(rest[0])}"
    return f"{whole}{_POINT if _is_in(language, _ESPEAK_LANGUAGES_WITH_POINT) else _COMMA}{rest[0]}"


def _count_group_marks(digits: Sequence[str], marks: Sequence[str], decimal: str, *, has_point: bool) -> int:
    """Return how many marks, from the first on, group the digits. 0 if the marks have another purpose."""
    mark = marks[0]
    count = next((index for index, other in enumerate(marks) if other != mark), len(marks))
    has_rest = count < len(marks)
    if has_rest and (len(marks) > count + 1 or marks[count] not in {_POINT, _COMMA, _ARABIC_POINT}):
        return 0
    # A single group after the decimal mark is a fraction, as in 3.141, unless a second mark proves otherwise.
    if mark == decimal and count == 1 and not has_rest:
        return 0
    lengths = [len(group) for group in digits[1 : count + 1]]
    if not 1 <= len(digits[0]) <= _GROUP_DIGITS or unicodedata.digit(digits[0][0]) == 0:
        return 0
    if all(length == _GROUP_DIGITS for length in lengths):
        return count
    is_indian = has_point and mark == _COMMA and len(digits[0]) <= _INDIAN_GROUP_DIGITS
    is_indian &= lengths[-1] == _GROUP_DIGITS and all(
        length == _INDIAN_GROUP_DIGITS for length in lengths[:-1]
    )
    return count if is_indian else 0
