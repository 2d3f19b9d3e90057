"""Read PO and POT files, and write translations into them. No other byte of the file changes."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from speechframe.errors import InvalidRows
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
from speechframe.strings.plurals import get_plural_rule
from speechframe.writing.words import format_count

DECLARED_ENCODING = re.compile(rb"charset=([\w.:-]+)")
_STRING = r'"(?:[^"\\\n]|\\.)*+"'
_TOKEN = re.compile(
    r"\s*+(?:#(?!\|)(?P<comment>[^\n]*)"
    r"|(?P<former>#\|)?[ \t]*(?P<keyword>msgctxt|msgid_plural|msgid|msgstr(?:\[(?P<form>\d{1,2})\])?)"
    rf"\s*(?P<strings>{_STRING}(?:\s*(?(former)#\|\s*){_STRING})*+))"
)
"""Pattern of a comment, or of a keyword with its strings. A keyword after ``#|`` has a former string."""
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


class _Value(NamedTuple):
    """A string of a message: the start of its keyword, and its span from the first quote to the last."""

    text: str
    keyword_start: int
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
    def is_complete(self) -> bool:
        return bool({0, -1} & self.values.keys())

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
        entries = format_count(obsolete, "obsolete entry", "obsolete entries")
        file.notes.append(f"{entries} of {name}: no rows")
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


def _read_messages(text: str, name: str) -> tuple[list[_Message], int]:
    """Return the messages of a file and the number of its obsolete messages."""
    found: list[_Message] = []
    message, line, position, obsolete = _Message(1), 1, 0, 0
    while token := _TOKEN.match(text, position):
        start = token.end() - len(token[0].lstrip())
        line += text.count("\n", position, start)
        keyword, comment = token["keyword"], token["comment"]
        if message.is_complete and (keyword in {None, "msgctxt", "msgid"} or token["former"]):
            found.append(message)
            message = _Message(line)
        if comment is None:
            _add_value(message, token, line, name)
        elif comment.startswith("~"):
            obsolete += bool(re.match(r"~\s*msgid\s", comment))
            message = message if message.values else _Message(line)
        elif comment.startswith(","):
            message.flags.append((start, min(token.end() + 1, len(text))))
            message.is_fuzzy |= "fuzzy" in re.split(r"[\s,]+", comment)
        position = token.end()
        line += text.count("\n", start, position)
    if rest := text[position:].lstrip():
        line += text.count("\n", position, len(text) - len(rest))
        raise _refuse_line(name, line, rest)
    found += [message] if message.values else []
    for one in found:
        if "msgid" not in one.values or not one.is_complete:
            raise refuse(name, f"the entry at line {one.line} lacks msgid or msgstr")
    return found, obsolete


def _add_value(message: _Message, token: re.Match[str], line: int, name: str) -> None:
    """Add the string of a keyword to a message."""
    key: str | int = token["keyword"].partition("[")[0]
    if key == "msgstr":
        key = int(token["form"] or -1)
    elif key in {"msgctxt", "msgid"} and not token["former"]:
        message.line = line
    values = message.former if token["former"] else message.values
    if key in values:
        raise _refuse_line(name, line, token[0].lstrip())
    pieces = _PIECE.findall(token["strings"])
    text = "".join(_ESCAPE.sub(_decode_escape, piece) for piece in pieces)
    values[key] = _Value(text, token.start("keyword"), *token.span("strings"))


def _refuse_line(name: str, line: int, text: str) -> InvalidRows:
    return refuse(name, f"line {line} is not a line of a PO file: {text.splitlines()[0][:60]!r}")


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
    numbers = (key for one in messages if one.is_plural for key in one.values if isinstance(key, int))
    highest = max(numbers, default=-1)
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
        return get_plural_rule(wanted)[0]
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
    context: dict[str | int, _Value] = {"msgctxt": values["msgctxt"]} if "msgctxt" in values else {}
    for number in range(forms) if message.is_plural else [-1]:
        target = message.get_form(number)
        text = values["msgid_plural" if number > 0 else "msgid"].text
        state = UNTRANSLATED if not target else "fuzzy" if message.is_fuzzy else TRANSLATED
        entry = StringEntry(_make_unit(values, number), message.line, text, target, state)
        if context:
            entry.context = values["msgctxt"].text
        if message.is_plural:
            entry.form = number
        if "msgid" in message.former:
            entry.former = _make_unit({**context, **message.former}, number)
        yield entry


def _edit_header(message: _Message, locale: str, newline: str, *, has_forms: bool) -> tuple[int, int, str]:
    """Return the edit that writes a locale and its plural forms into the header."""
    wanted = {"Language": locale.replace("-", "_")}
    if has_forms:
        with suppress(ValueError):  # forms that the header alone states
            wanted["Plural-Forms"] = "nplurals={}; plural=({});".format(*get_plural_rule(locale))
    old = message.values[-1]
    lines = old.text.rstrip("\n").split("\n") if old.text else []
    for key, value in wanted.items():
        names = [line.partition(":")[0].lower() for line in lines]
        at = names.index(key.lower()) if key.lower() in names else len(lines)
        lines[at : at + 1] = [f"{key}: {value}"]
    return old.start, old.end, _format("".join(f"{line}\n" for line in lines), newline)


def _edit_forms(message: _Message, new: Mapping[int, str | None], newline: str) -> tuple[int, int, str]:
    """Return the edit that replaces all forms of a message. A form without a new text keeps its text."""
    old = [value for key, value in message.values.items() if isinstance(key, int)]
    texts = {number: message.get_form(number) if text is None else text for number, text in new.items()}
    lines = [f"msgstr[{number}] {_format(text, newline)}" for number, text in texts.items()]
    return min(one.keyword_start for one in old), max(one.end for one in old), newline.join(lines)


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
