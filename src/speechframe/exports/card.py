"""The card of a dataset: a README with its languages, voices, licences, splits and limits."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from speechframe.exports.clips import ExportedClip
from speechframe.exports.tree import ExportTree
from speechframe.spec.locales import get_display_name, get_language
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    from speechframe.exports.report import ExportReport

UNKNOWN = "not stated"

_NOT_MEASURED = "not measured"
_SYNTHETIC = "All speech in this dataset is synthetic."
_SYNTHETIC_CONVERTED = "All speech in this dataset is synthetic, or was converted to a synthetic voice."


@dataclass
class _Sum:
    """Clips and seconds of a part of the dataset."""

    clips: int = 0
    audio_seconds: float = 0.0


@dataclass
class Card:
    """Facts for the card: words of the caller, facts of the voices from the service, and sums over the clips.

    Attributes
    ----------
    title, description, text_source, text_licence, licence
        Words of the caller. `licence` is the licence of the dataset, as an identifier of the hub.
    voices
        Facts of the voices by id: ``engine``, ``kind``, ``licence``, ``output_terms``, ``bandwidth_hz``,
        ``clarity``.
    quality
        A sentence for each measure of quality. Empty if quality was not measured.
    has_converted_speech
        True if a run of the voice changer is in the dataset.
    """

    title: str = ""
    description: str = ""
    text_source: str = UNKNOWN
    text_licence: str = UNKNOWN
    licence: str = ""
    voices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    quality: tuple[str, ...] = ()
    has_converted_speech: bool = False
    sums: dict[tuple[str, str, str], _Sum] = field(default_factory=lambda: defaultdict(_Sum), init=False)
    speakers: set[str] = field(default_factory=set, init=False)
    sample_rates: set[int] = field(default_factory=set, init=False)

    @property
    def audio_seconds(self) -> float:
        """Length of all clips in seconds."""
        return sum(part.audio_seconds for part in self.sums.values())

    def add(self, clip: ExportedClip) -> None:
        """Count a clip."""
        part = self.sums[clip.split, clip.locale, clip.voice_id]
        part.clips += 1
        part.audio_seconds += clip.audio_seconds
        self.speakers.add(clip.speaker)
        self.sample_rates.add(clip.sample_rate)

    def sum_by(self, level: int) -> dict[str, _Sum]:
        """Return the sums by split (0), locale (1) or voice (2)."""
        sums: dict[str, _Sum] = defaultdict(_Sum)
        for key, part in self.sums.items():
            sums[key[level]].clips += part.clips
            sums[key[level]].audio_seconds += part.audio_seconds
        return dict(sorted(sums.items()))


def write_card(tree: ExportTree, card: Card, report: "ExportReport") -> None:
    """Write ``README.md`` with the header that the hub reads."""
    title = card.title or report.path.name
    mark = _SYNTHETIC_CONVERTED if card.has_converted_speech else _SYNTHETIC
    lines = [
        "---",
        *_write_header(card, report),
        "---",
        "",
        f"# {title}",
        "",
        f"**{mark}** It was made with speechframe.",
        *(["", card.description] if card.description else []),
        "",
        f"- {', '.join(_write_sizes(card, report))}",
        f"- sample rate: {', '.join(f'{rate:,} Hz' for rate in sorted(card.sample_rates))}",
        f"- source of the texts: {card.text_source}",
        f"- licence of the texts: {card.text_licence}",
        "",
        *_write_sums("Languages", "language", {_name_locale(k): v for k, v in card.sum_by(1).items()}),
        *_write_sums("Splits", "split", {name: card.sum_by(0)[name] for name in report.splits}),
        *_write_voices(card),
        *_write_remarks(card, report),
    ]
    tree.write("README.md", "\n".join(lines))


def _write_sizes(card: Card, report: "ExportReport") -> Iterator[str]:
    yield format_count(report.clips, "clip")
    yield f"{card.audio_seconds / 3600:,.3f} hours"
    yield format_count(len(card.speakers), "speaker")
    yield format_count(len(card.sum_by(2)), "voice")


def _write_header(card: Card, report: "ExportReport") -> list[str]:
    languages = sorted({get_language(locale) for locale in card.sum_by(1) if locale})
    header = [f"language: {json.dumps(languages)}", 'tags: ["synthetic", "speech"]']
    if card.licence:
        header.append(f"license: {json.dumps(card.licence)}")
    if "huggingface" in report.formats:
        header.append("configs:\n- config_name: default\n  data_files:")
        header += [f'  - split: "{split}"\n    path: "data/{split}-*.parquet"' for split in report.splits]
    return header


def _name_locale(locale: str) -> str:
    return f"{get_display_name(locale)} ({locale})" if locale else UNKNOWN


def _write_sums(title: str, name: str, sums: Mapping[str, _Sum]) -> list[str]:
    rows = [
        f"| {_plain(key)} | {part.clips:,} | {part.audio_seconds / 3600:,.3f} |" for key, part in sums.items()
    ]
    return [f"## {title}", "", f"| {name} | clips | hours |", "|---|---:|---:|", *rows, ""]


def _write_voices(card: Card) -> list[str]:
    """Return the table of voices, and a sentence on their bandwidth."""
    lines = [
        "## Voices",
        "",
        "| voice | engine | kind | words misheard | native bandwidth | licence | terms of the output |",
        "|---|---|---|---|---|---|---|",
    ]
    widths = []
    for voice in card.sum_by(2):
        facts = card.voices.get(voice, {})
        width = facts.get("bandwidth_hz")
        widths.append(width)
        errors = "; ".join(f"{tag} {error:.1%}" for tag, error in (facts.get("clarity") or {}).items())
        cells = [
            voice or UNKNOWN,
            facts.get("engine") or UNKNOWN,
            facts.get("kind") or UNKNOWN,
            errors or _NOT_MEASURED,
            f"{width / 1000:g} kHz" if width else _NOT_MEASURED,
            facts.get("licence") or UNKNOWN,
            facts.get("output_terms") or UNKNOWN,
        ]
        lines.append(f"| {' | '.join(_plain(cell) for cell in cells)} |")
    widest, rate = max((width for width in widths if width), default=0), max(card.sample_rates)
    if widest and rate > 2 * widest:
        width = f"{widest / 1000:g} kHz"
        lines += [
            "",
            f"The voices contain no sound above {width}, so the sample rate of {rate:,} Hz adds nothing.",
        ]
    return [*lines, ""]


def _write_remarks(card: Card, report: "ExportReport") -> list[str]:
    lines = ["## Quality and limits", ""]
    lines += [f"- {sentence}" for sentence in card.quality or ("Quality was not measured.",)]
    lines += [f"- {number:,} {explanation}" for explanation, number in report.notes.items()]
    lines += [f"- {sentence}" for sentence in report.remarks]
    if len(report.left_out):
        number = format_count(len(report.left_out), "row")
        verb = "was" if len(report.left_out) == 1 else "were"
        lines.append(f"- {number} of the runs {verb} left out; `left_out.csv` gives the reasons")
    return [*lines, ""]


def _plain(cell: str) -> str:
    """Return a text for a cell of a table."""
    return " ".join(cell.replace("|", "\\|").split())
