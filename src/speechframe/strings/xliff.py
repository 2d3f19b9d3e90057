"""Read XLIFF 1.2, and write targets into it. No other byte of the file changes.

The parser resolves no entities of a document type and opens no other file. A text with inline elements
(``<g>``, ``<x/>``) is its XML as written. All other texts are plain.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from speechframe.errors import refuse
from speechframe.spec.locales import is_certainly_different
from speechframe.strings.entries import (
    NOT_TRANSLATABLE,
    TRANSLATED,
    UNTRANSLATED,
    StringEntry,
    StringsFile,
    apply_edits,
    get_newline,
    is_usable_state,
    read_locale,
)

DECLARED_ENCODING = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([\w.:-]+)")
_NEW = "new"
"""State of a unit without a target."""
_TAG = re.compile(rb"<(?:[^\"'>]|\"[^\"]*\"|'[^']*')*>")


@dataclass(slots=True)
class _Element:
    """A source or target. `tag` is the span of its start tag, `end` the start of its end tag, in bytes."""

    attributes: dict[str, str]
    tag: tuple[int, int]
    end: int = 0
    after: int = 0  # the position after the end tag
    text: str = ""
    has_elements: bool = False


@dataclass(slots=True)
class _Unit:
    id: str
    line: int
    file: int  # the index of its file
    is_approved: bool
    may_translate: bool
    elements: dict[str, _Element] = field(default_factory=dict)
    note: str = ""

    @property
    def is_markup(self) -> bool:
        """Whether the unit has inline elements."""
        return any(element.has_elements for element in self.elements.values())


class _Reader:
    """Collect the units of a document and the start tags of its files.

    The id of a unit in one of several files begins with the original of its file.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name
        self.files: list[tuple[dict[str, str], tuple[int, int]]] = []
        self.units: list[_Unit] = []
        self._path: list[tuple[str, bool]] = []  # name of each open element, and whether it is translated
        self._open: _Element | None = None
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = self._add_text, self._refuse_doctype
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            fault = f"line {error.lineno} is not valid XML: {expat.ErrorString(error.code)}"
            raise refuse(name, fault) from None
        for unit in self.units if len(self.files) > 1 else ():
            unit.id = f"{self.files[unit.file][0].get('original', '')}|{unit.id}"

    def _refuse_doctype(self, *_: Any) -> None:
        raise refuse(self.name, "has a document type (DOCTYPE), which may define entities", "XML without it")

    def _start(self, element: str, attributes: dict[str, str]) -> None:
        name, start = element.rpartition(":")[2], self._parser.CurrentByteIndex
        if not self._path and (name != "xliff" or not attributes.get("version", "1").startswith("1")):
            kind = f"XLIFF {attributes['version']}" if name == "xliff" else f"XML with the root <{name}>"
            raise refuse(self.name, f"is {kind}", "XLIFF 1.2")
        above, may_translate = self._path[-1] if self._path else ("", True)
        may_translate = attributes.get("translate", "yes" if may_translate else "no") != "no"
        found = _TAG.match(self.data, start)
        tag = start, found.end() if found else start
        if name == "file":
            self.files.append((attributes, tag))
        elif name == "trans-unit":
            line, is_approved = self._parser.CurrentLineNumber, attributes.get("approved") == "yes"
            unit = _Unit(attributes.get("id", ""), line, len(self.files) - 1, is_approved, may_translate)
            self.units.append(unit)
        elif above == "trans-unit" and name in {"source", "target", "seg-source"}:
            self._open = self.units[-1].elements[name] = _Element(attributes, tag)
        elif self._open is not None:
            self._open.has_elements = True
        self._path.append((name, may_translate))

    def _end(self, element: str) -> None:
        name = element.rpartition(":")[2]
        self._path.pop()
        if self._open is not None and self._path[-1][0] == "trans-unit" and name in self.units[-1].elements:
            made, at = self._open, self._parser.CurrentByteIndex
            is_empty = self.data.endswith(b"/>", *made.tag)
            made.end = made.tag[1] if is_empty else at
            made.after = made.tag[1] if is_empty else self.data.index(b">", at) + 1
            self._open = None

    def _add_text(self, text: str) -> None:
        if self._open is not None:
            self._open.text += text
        elif [name for name, _ in self._path[-2:]] == ["trans-unit", "note"]:
            self.units[-1].note += text

    def read_text(self, unit: _Unit, name: str) -> str:
        """Return the text of a source or target, as XML if the unit has inline elements."""
        element = unit.elements.get(name)
        if element is None:
            return ""
        return self.data[element.tag[1] : element.end].decode() if unit.is_markup else element.text


def read(text: str, name: str, locale: str | None = None) -> StringsFile:  # noqa: ARG001 - as for other kinds
    """Return the strings of an XLIFF file."""
    reader, file = _Reader(text.encode(), name), StringsFile(name, [])
    file.locale = _read_language(reader, "target-language")
    file.source_locale = _read_language(reader, "source-language")
    for unit in reader.units:
        if not unit.id or "source" not in unit.elements:
            raise refuse(name, f"the unit at line {unit.line} has no id or no source")
        source, target = (reader.read_text(unit, element) for element in ("source", "target"))
        entry = StringEntry(unit.id, unit.line, source, target, _find_state(unit, target))
        entry.context, entry.is_markup = unit.note.strip() or None, unit.is_markup
        file.entries.append(entry)
    return file


def _read_language(reader: _Reader, attribute: str) -> str | None:
    stated = (attributes.get(attribute) for attributes, _ in reader.files)
    found = {read_locale(each, reader.name) for each in stated if each}
    if len(found) > 1:
        raise refuse(reader.name, f"has files with a different {attribute}: {', '.join(sorted(found))}")
    return next(iter(found), None)


def _find_state(unit: _Unit, target: str) -> str:
    if not unit.may_translate:
        return NOT_TRANSLATABLE
    stated = unit.elements["target"].attributes.get("state") if "target" in unit.elements else None
    return stated or (UNTRANSLATED if not target else "approved" if unit.is_approved else TRANSLATED)


def fill(text: str, name: str, texts: Mapping[str, str], locale: str) -> str:
    """Return an XLIFF file with the given targets by unit. A state such as ``new`` becomes ``translated``.

    The state of an empty target becomes ``new``.

    If the file is in another locale, or has no target locale, its ``target-language`` becomes this locale.
    """
    reader, newline = _Reader(text.encode(), name), get_newline(text)
    edits: list[tuple[int, int, bytes]] = []
    for attributes, tag in reader.files:
        stated = attributes.get("target-language", "")
        if not stated or is_certainly_different(stated, locale):
            edits.append((*tag, _set_attribute(reader.data[slice(*tag)], "target-language", locale)))
    for unit in reader.units:
        if (new := texts.get(unit.id)) is None:
            continue
        written = (new if unit.is_markup else escape(new)).replace("\r", "&#13;").replace("\n", newline)
        body, target = written.encode(), unit.elements.get("target")
        if target is None:
            before = unit.elements.get("seg-source") or unit.elements["source"]
            space = re.search(rb"(?:\r?\n[ \t]*)?$", reader.data[: before.tag[0]])
            prefix = re.match(rb"<([\w.-]+:)?", reader.data[slice(*before.tag)])
            element = (prefix[1] if prefix and prefix[1] else b"") + b"target"
            made = b"%s<%s>%s</%s>" % (space[0] if space else b"", element, body, element)
            edits.append((before.after, before.after, made))
            continue
        tag_text = reader.data[slice(*target.tag)]
        state = target.attributes.get("state")
        if state is not None and (not new or not is_usable_state(state)):
            tag_text = _set_attribute(tag_text, "state", TRANSLATED if new else _NEW)
        if tag_text.endswith(b"/>"):
            opened = tag_text[:-2].rstrip()
            body += b"</" + opened[1:].split(None, 1)[0] + b">"
            tag_text = opened + b">"
        edits.append((target.tag[0], target.end, tag_text + body))
    return apply_edits(reader.data, edits).decode()


def _set_attribute(tag: bytes, name: str, value: str) -> bytes:
    """Return a start tag with an attribute set to a value."""
    pattern = rb"(\s%s\s*=\s*)(?:\"[^\"]*\"|'[^']*')" % name.encode()
    made, count = re.subn(pattern, lambda found: found[1] + quoteattr(value).encode(), tag, count=1)
    at = len(made.removesuffix(b">").removesuffix(b"/").rstrip())
    return made if count else made[:at] + f" {name}={quoteattr(value)}".encode() + made[at:]


def is_fragment(text: str) -> bool:
    """Return whether a text can stand between two tags of a document."""
    try:
        expat.ParserCreate("utf-8").Parse(f"<x>{text}</x>".encode(), True)
    except expat.ExpatError:
        return False
    return True
