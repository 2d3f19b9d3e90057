"""Read PO and POT files, and write translations into them. No other byte of the file changes."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from speechframe.errors import InvalidRows, refuse
from speechframe.spec.locales import is_certainly_different
from speechframe.strings.entries import (
    TRANSLATED,
    UNTRANSLATED,
    StringEntry,
    StringsFile,
    apply_edits,
    get_newline,
    read_locale,
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
    """A message of a file. Keys of `forms` are the numbers of plural forms. The key -1 is ``msgstr``."""

    line: int
    values: dict[str, _Value] = field(default_factory=dict)
    forms: dict[int, _Value] = field(default_factory=dict)
    former: dict[str, _Value] = field(default_factory=dict)  # of the lines that begin with "#|"
    flags: list[tuple[int, int]] = field(default_factory=list)  # spans of the lines of flags
    is_fuzzy: bool = False

    @property
    def is_plural(self) -> bool:
        return "msgid_plural" in self.values

    def get_form(self, number: int) -> str:
        return self.forms[number].text if number in self.forms else ""

    def name_forms(self, count: int) -> dict[int, str]:
        """Return the unit of each form in a locale with so many plural forms."""
        numbers = range(count) if self.is_plural else [-1]
        return {number: _make_unit(self.values, number) for number in numbers}


class _Catalogue:
    """The messages of a file without its header, the fields of the header, and the number of plural forms.

    If `locale` is given, the file has the plural forms of this locale, even if its header says otherwise.
    """

    def __init__(self, text: str, name: str, locale: str | None) -> None:
        self.messages, self.obsolete = _read_messages(text, name)
        headers = [
            one for one in self.messages if "msgctxt" not in one.values and not one.values["msgid"].text
        ]
        self.header = headers[0] if headers else None
        self.messages = [one for one in self.messages if one not in headers]
        lines = self.header.get_form(-1).split("\n") if self.header else []
        pairs = (line.partition(":") for line in lines)
        self.fields = {key.strip().lower(): value.strip() for key, _, value in pairs}
        self.language = self.fields.get("language")
        self.forms = self._count_forms(name, locale)

    def _count_forms(self, name: str, locale: str | None) -> int:
        highest = max((number for one in self.messages if one.is_plural for number in one.forms), default=-1)
        if highest < 0:
            return 1
        header = re.search(r"nplurals\s*=\s*(\d{1,2})\b", self.fields.get("plural-forms", ""))
        if header and (locale is None or not self.is_other(locale)):
            if not highest < int(header[1]) <= _MAX_FORMS:
                fault = f"has msgstr[{highest}], but its header states nplurals={header[1]}"
                raise refuse(name, fault, "a header Plural-Forms that fits the entries")
            return int(header[1])
        wanted = locale or self.language
        try:
            return get_plural_rule(wanted)[0] if wanted else highest + 1
        except ValueError as error:
            raise refuse(name, str(error)) from None

    def is_other(self, locale: str) -> bool:
        """Return whether the file is in another locale, or has no locale."""
        return not self.language or is_certainly_different(self.language, locale)


def read(text: str, name: str, locale: str | None = None) -> StringsFile:
    """Return the strings of a PO file. A plural form is an entry. `locale` decides about the plural forms."""
    found = _Catalogue(text, name, locale)
    file = StringsFile(name, [], read_locale(found.language, name) if found.language else None)
    file.entries = [entry for message in found.messages for entry in _make_entries(message, found.forms)]
    if found.obsolete:
        entries = format_count(found.obsolete, "obsolete entry", "obsolete entries")
        file.notes.append(f"{entries} of {name}: no rows")
    return file


def fill(text: str, name: str, texts: Mapping[str, str], locale: str) -> str:
    """Return a PO file with the given targets by unit. Their flag ``fuzzy`` is removed.

    If the file is in another locale, or has no locale, the header gets this locale and its plural forms.
    """
    found, newline = _Catalogue(text, name, locale), get_newline(text)
    edits: list[tuple[int, int, str]] = []
    if found.header and found.is_other(locale):
        edits.append(_edit_header(found, found.header.forms[-1], locale, newline))
    for message in found.messages:
        units = message.name_forms(found.forms)
        new = {number: texts[unit] for number, unit in units.items() if unit in texts}
        if message.is_plural and units.keys() != message.forms.keys():
            edits.append(_edit_forms(message, {number: new.get(number) for number in units}, newline))
        else:
            old = message.forms
            edits += [(old[n].start, old[n].end, _format(value, newline)) for n, value in new.items()]
        if message.is_fuzzy and new:
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
        if message.forms and (keyword in {None, "msgctxt", "msgid"} or token["former"]):
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
    found += [message] if message.values or message.forms else []
    for one in found:
        if "msgid" not in one.values or not one.forms.keys() & {0, -1}:
            raise refuse(name, f"the entry at line {one.line} lacks msgid or msgstr")
    return found, obsolete


def _add_value(message: _Message, token: re.Match[str], line: int, name: str) -> None:
    """Add the string of a keyword to a message."""
    key: Any = token["keyword"].partition("[")[0]
    values: dict[Any, _Value] = message.former
    if not token["former"] and key == "msgstr":
        values, key = message.forms, int(token["form"] or -1)
    elif not token["former"]:
        values, message.line = message.values, line if key != "msgid_plural" else message.line
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


def _make_unit(values: Mapping[str, _Value], number: int) -> str:
    unit = values["msgid"].text
    if "msgctxt" in values:
        unit = f"{values['msgctxt'].text}|{unit}"
    return unit if number < 0 else f"{unit}[{number}]"


def _make_entries(message: _Message, forms: int) -> Iterator[StringEntry]:
    values = message.values
    context = {"msgctxt": values["msgctxt"]} if "msgctxt" in values else {}
    for number, unit in message.name_forms(forms).items():
        target = message.get_form(number)
        text = values["msgid_plural" if number > 0 else "msgid"].text
        state = UNTRANSLATED if not target else "fuzzy" if message.is_fuzzy else TRANSLATED
        entry = StringEntry(unit, message.line, text, target, state)
        if context:
            entry.context = values["msgctxt"].text
        if message.is_plural:
            entry.form = number
        if "msgid" in message.former:
            entry.former = _make_unit({**context, **message.former}, number)
        yield entry


def _edit_header(found: _Catalogue, old: _Value, locale: str, newline: str) -> tuple[int, int, str]:
    """Return the edit that writes a locale and its plural forms into the header."""
    wanted = {"Language": locale.replace("-", "_")}
    if "plural-forms" in found.fields or any(one.is_plural for one in found.messages):
        with suppress(ValueError):  # forms that the header alone states
            wanted["Plural-Forms"] = "nplurals={}; plural=({});".format(*get_plural_rule(locale))
    lines = old.text.rstrip("\n").split("\n") if old.text else []
    for key, value in wanted.items():
        names = [line.partition(":")[0].lower() for line in lines]
        at = names.index(key.lower()) if key.lower() in names else len(lines)
        lines[at : at + 1] = [f"{key}: {value}"]
    return old.start, old.end, _format("".join(f"{line}\n" for line in lines), newline)


def _edit_forms(message: _Message, new: Mapping[int, str | None], newline: str) -> tuple[int, int, str]:
    """Return the edit that replaces all forms of a message. A form without a new text keeps its text."""
    old = message.forms.values()
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
