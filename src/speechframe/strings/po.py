"""Read PO and POT files, and write translations into them. No other byte of the file changes."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from speechframe.spec.locales import is_certainly_different
from speechframe.strings.entries import (
    TRANSLATED,
    UNTRANSLATED,
    StringEntry,
    StringsFile,
    apply_edits,
    get_newline,
    read_locale,
    refuse,
)
from speechframe.strings.plurals import count_plural_forms, get_plural_rule
from speechframe.writing.words import format_count

DECLARED_ENCODING = re.compile(rb"charset=([\w.:-]+)")
_LINE = re.compile(
    r"\s*(?:(msgctxt|msgid_plural|msgid|msgstr)(?:\[(\d{1,2})\])?\s*)?"
    r'("(?:[^"\\]|\\.)*+"(?:\s*"(?:[^"\\]|\\.)*+")*+)?\s*'
)
_PIECE = re.compile(r'"((?:[^"\\]|\\.)*+)"')
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)")
_CHARACTER_BY_ESCAPE = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPE_BY_CHARACTER = {
    **{character: f"\\{letter}" for letter, character in _CHARACTER_BY_ESCAPE.items()},
    '"': '\\"',
    "\\": "\\\\",
}
_MAX_FORMS = 12
"""Largest number of plural forms that a header may state. No known language has more than six."""


@dataclass(slots=True)
class _Value:
    """A string of a message, from its first quote to its last. `line_start` begins its keyword's line."""

    text: str
    line_start: int
    start: int
    end: int


@dataclass(slots=True)
class _Message:
    """A message of a file. Keys of `values` are keywords, and the numbers of forms. The key -1 is msgstr."""

    line: int
    values: dict[str | int, _Value] = field(default_factory=dict)
    former: dict[str | int, _Value] = field(default_factory=dict)  # of the lines that begin with "#|"
    flags: list[tuple[int, int]] = field(default_factory=list)  # spans of the lines of flags
    is_fuzzy: bool = False

    @property
    def is_plural(self) -> bool:
        return "msgid_plural" in self.values

    @property
    def is_header(self) -> bool:
        return "msgctxt" not in self.values and not self.values["msgid"].text

    def get_form(self, number: int) -> str:
        return self.values[number].text if number in self.values else ""


def read(text: str, name: str, locale: str | None = None) -> StringsFile:
    """Return the strings of a PO file. A plural form is an entry.

    If `locale` is given, the file has the plural forms of this locale, even if its header says otherwise.
    """
    messages, obsolete = _read_messages(text, name)
    fields = _read_header(messages)
    language = fields.get("language", "")
    file = StringsFile(name, [], read_locale(language, name) if language else None)
    forms = _count_forms(fields, messages, file.locale, locale, name)
    file.entries = [entry for message in messages for entry in _make_entries(message, forms)]
    if obsolete:
        file.notes.append(
            f"{format_count(obsolete, 'obsolete entry', 'obsolete entries')} of {name}: no rows"
        )
    return file


def fill(text: str, name: str, texts: Mapping[str, str], locale: str) -> str:
    """Return a PO file with the given targets by unit. Their flag ``fuzzy`` is removed.

    If the file is in another locale, or has no locale, the header gets this locale and its plural forms.
    """
    messages, _ = _read_messages(text, name)
    fields, newline = _read_header(messages), get_newline(text)
    stated = fields.get("language", "")
    is_other = not stated or is_certainly_different(stated, locale)
    forms = _count_forms(fields, messages, stated or None, locale, name)
    edits: list[tuple[int, int, str]] = []
    for message in messages:
        if message.is_header:
            if is_other:
                has_forms = "plural-forms" in fields or any(one.is_plural for one in messages)
                edits.append(_edit_header(message, locale, newline, has_forms=has_forms))
            continue
        numbers = range(forms) if message.is_plural else [-1]
        new = {number: texts.get(_make_unit(message.values, number)) for number in numbers}
        if message.is_plural and {*numbers} != {key for key in message.values if isinstance(key, int)}:
            edits.append(_edit_forms(message, new, newline))
        else:
            for number, value in new.items():
                if value is not None:
                    old = message.values[number]
                    edits.append((old.start, old.end, _format(value, newline)))
        if message.is_fuzzy and any(value is not None for value in new.values()):
            edits += [(start, end, _drop_fuzzy(text[start:end])) for start, end in message.flags]
    return apply_edits(text, edits)


def _read_messages(text: str, name: str) -> tuple[list[_Message], int]:  # noqa: C901 - one kind of line each
    """Return the messages of a file and the number of its obsolete messages."""
    found: list[_Message] = []
    message, value, end, obsolete = _Message(1), None, 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        start, end = end, end + len(line) + 1
        stripped = line.strip()
        is_former = stripped.startswith("#|")
        match = _LINE.fullmatch(line, line.find("#|") + 2 if is_former else 0)
        if (0 in message.values or -1 in message.values) and (
            stripped[:1] == "#" or (match and match[1] in {"msgctxt", "msgid"})
        ):
            found.append(message)
            message = _Message(number)
        if not stripped:
            continue
        if stripped[0] == "#" and not is_former:
            if stripped.startswith("#~"):
                obsolete += bool(re.match(r"#~\s*msgid\s", stripped))
                message = _Message(number + 1)
            elif stripped.startswith("#,"):
                message.flags.append((start, min(end, len(text))))
                message.is_fuzzy |= "fuzzy" in re.split(r"[\s,]+", stripped)
            continue
        values = message.former if is_former else message.values
        value = _read_line(match, values, value, start)
        if value is None or not (is_former or values.keys() & {"msgid", "msgctxt"}):
            raise refuse(name, f"line {number} is not a line of a PO file: {stripped[:60]!r}")
        if not (is_former or message.values.keys() - {"msgctxt", "msgid"}):
            message.line = number
    if message.values:
        found.append(message)
    for message in found:
        if "msgid" not in message.values or not ({0, -1} & message.values.keys()):
            raise refuse(name, f"the entry at line {message.line} lacks msgid or msgstr")
    return found, obsolete


def _read_line(
    match: re.Match[str] | None, values: dict[str | int, _Value], value: _Value | None, start: int
) -> _Value | None:
    """Add the strings of a line to `values`, or to the last value. Return None if the line is invalid."""
    if match is None or match[3] is None:
        return None
    if keyword := match[1]:
        key: str | int = keyword if keyword != "msgstr" else int(match[2]) if match[2] else -1
        if key in values or (match[2] and keyword != "msgstr"):
            return None
        value = values[key] = _Value("", start, start + match.start(3), 0)
    elif value is None or not any(value is one for one in values.values()):
        return None
    value.text += "".join(_ESCAPE.sub(_decode_escape, piece) for piece in _PIECE.findall(match[3]))
    value.end = start + match.end(3)
    return value


def _decode_escape(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if code[0] in "01234567" else _CHARACTER_BY_ESCAPE.get(code, code)


def _read_header(messages: list[_Message]) -> dict[str, str]:
    header = next((one for one in messages if one.is_header), None)
    lines = header.get_form(-1).split("\n") if header else []
    pairs = (line.partition(":") for line in lines)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _count_forms(
    fields: Mapping[str, str], messages: list[_Message], stated: str | None, locale: str | None, name: str
) -> int:
    """Return the number of plural forms in a locale, or in the locale of the file if `locale` is None."""
    highest = max(
        (key for one in messages if one.is_plural for key in one.values if isinstance(key, int)), default=-1
    )
    if highest < 0:
        return 1
    header = re.search(r"nplurals\s*=\s*(\d{1,2})\b", fields.get("plural-forms", ""))
    is_same = locale is None or (stated and not is_certainly_different(stated, locale))
    if header and is_same:
        if not highest < int(header[1]) <= _MAX_FORMS:
            fault = f"has msgstr[{highest}], but its header states nplurals={header[1]}"
            raise refuse(name, fault, "a header Plural-Forms that fits the entries")
        return int(header[1])
    wanted = locale or stated
    if wanted is None:
        return highest + 1
    try:
        return count_plural_forms(wanted)
    except ValueError as error:
        raise refuse(name, str(error)) from None


def _make_unit(values: Mapping[str | int, _Value], number: int) -> str:
    unit = values["msgid"].text
    if "msgctxt" in values:
        unit = f"{values['msgctxt'].text}|{unit}"
    return unit if number < 0 else f"{unit}[{number}]"


def _make_entries(message: _Message, forms: int) -> Iterator[StringEntry]:
    if message.is_header:
        return
    values = message.values
    for number in range(forms) if message.is_plural else [-1]:
        target = message.get_form(number)
        former: dict[str | int, _Value] = dict(message.former)
        if "msgctxt" in values:
            former.setdefault("msgctxt", values["msgctxt"])
        yield StringEntry(
            _make_unit(values, number),
            message.line,
            values["msgid_plural" if number > 0 else "msgid"].text,
            target,
            UNTRANSLATED if not target else "fuzzy" if message.is_fuzzy else TRANSLATED,
            values["msgctxt"].text if "msgctxt" in values else None,
            number if number >= 0 else None,
            former=_make_unit(former, number) if "msgid" in message.former else None,
        )


def _edit_header(message: _Message, locale: str, newline: str, *, has_forms: bool) -> tuple[int, int, str]:
    """Return the edit that writes a locale and its plural forms into the header."""
    wanted = {"Language": locale.replace("-", "_")}
    if has_forms:
        with suppress(ValueError):  # forms that the header alone states
            wanted["Plural-Forms"] = "nplurals={}; plural=({});".format(*get_plural_rule(locale))
    old = message.values[-1]
    lines = old.text.rstrip("\n").split("\n") if old.text else []
    for key, value in wanted.items():
        at = next(
            (i for i, one in enumerate(lines) if one.partition(":")[0].lower() == key.lower()), len(lines)
        )
        lines[at : at + 1] = [f"{key}: {value}"]
    return old.start, old.end, _format("".join(f"{line}\n" for line in lines), newline)


def _edit_forms(message: _Message, new: Mapping[int, str | None], newline: str) -> tuple[int, int, str]:
    """Return the edit that replaces all forms of a message. A form without a new text keeps its text."""
    old = [value for key, value in message.values.items() if isinstance(key, int)]
    texts = {number: message.get_form(number) if text is None else text for number, text in new.items()}
    lines = [f"msgstr[{number}] {_format(text, newline)}" for number, text in texts.items()]
    return min(one.line_start for one in old), max(one.end for one in old), newline.join(lines)


def _drop_fuzzy(line: str) -> str:
    """Return a line of flags without the flag fuzzy. Return an empty text if no flag is left."""
    body = line.rstrip("\r\n")
    kept = [flag for flag in re.split(r"[\s,]+", body.partition("#,")[2]) if flag not in {"", "fuzzy"}]
    return f"#, {', '.join(kept)}{line[len(body) :]}" if kept else ""


def _format(text: str, newline: str) -> str:
    """Return a text in quotes as gettext writes it: a text of several lines begins with an empty string."""
    lines = re.findall(r"[^\n]*\n|[^\n]+$", text) or [""]
    quoted = [f'"{"".join(_ESCAPE_BY_CHARACTER.get(one, one) for one in line)}"' for line in lines]
    return newline.join(['""', *quoted] if len(quoted) > 1 else quoted)
