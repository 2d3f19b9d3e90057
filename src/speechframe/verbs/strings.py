"""The functions `read_strings` and `write_strings`, which connect files of strings with frames and runs."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe.backends.sheets import read_table
from speechframe.batch.live import open_run
from speechframe.batch.progress import print_line
from speechframe.errors import refuse
from speechframe.store.reader import StoredRun
from speechframe.strings.entries import StringEntry, read_locale
from speechframe.strings.read import read_files
from speechframe.strings.write import StringsReport, fill_file
from speechframe.tables.files import TABLE_SUFFIXES
from speechframe.tables.table import is_missing

if TYPE_CHECKING:
    import pandas as pd

_DONE = frozenset({"done", "cached"})
"""Values of the column ``status`` of rows whose texts are written."""


def read_strings(
    files: Any,
    *,
    previous: Any = None,
    source_locale: str | None = None,
    progress: bool = True,
) -> "pd.DataFrame":
    """Return strings and subtitles of files as a frame, one row for each string, plural form or cue.

    The columns are ``id``, ``text``, ``context``, ``form`` (number of the plural form), ``state``, one column
    for each locale, ``character``, ``start_s``, ``end_s``, ``slot_s`` and ``gap_s`` of cues,
    ``source_locale``, ``locales`` of plural forms, ``previous_id``, ``previous_basis``, ``unit`` (the id in
    the file) and ``file``. A column that no file fills is left out.

    Parameters
    ----------
    files
        A path, or a list of independent files, whose ids then begin with ``<file name>:``. A dict of paths by
        locale, or a pattern such as ``"film.{locale}.srt"``, is one set of strings in several locales. Kinds:
        ``.po``, ``.pot``, ``.xlf`` and ``.xliff`` (1.2), ``.srt``, ``.vtt``, ``.csv``, ``.tsv``, ``.xlsx``.
    previous
        The strings of the last time: a table with ``id`` and ``text``, a run of it, or the path of either. A
        string that is found there keeps its id, even if its text has changed.
    source_locale
        Locale of the source texts. XLIFF states it itself. In a dict of cues the default is the first locale.
    progress
        False prints no remarks. They are always in ``frame.attrs["notes"]``.

    Raises
    ------
    InvalidRows
        A file cannot be read, is of another kind, has two equal ids, or states an unknown locale.

    Examples
    --------
    >>> strings = spf.read_strings(["app.po", "validators.xlf"], previous="runs/tr")  # doctest: +SKIP
    >>> cues = spf.read_strings({"en-US": "film.srt", "de-DE": "film.de.srt"})  # doctest: +SKIP
    """
    frame = read_files(files, None if previous is None else _open_frame(previous, "previous"), source_locale)
    for note in frame.attrs["notes"]:
        print_line(note, shown=progress)
    return frame


def write_strings(
    source: Any,
    *,
    template: str | PathLike[str],
    out: str | PathLike[str],
    locale: str,
    corrections: Any = None,
    progress: bool = True,
) -> StringsReport:
    """Write the texts of a locale into a copy of a file, and return a :class:`StringsReport`.

    Only the texts that differ change, and all other bytes of the file stay the same. (XLSX files get the same
    cells.)

    Parameters
    ----------
    source
        A run of `translate`, or a frame of :func:`read_strings`. Rows without a text, and rows that are not
        done, leave the text of the template. If the template is in another locale, they remove it.
    template
        The file to fill: PO, XLIFF 1.2, SRT, WebVTT, CSV, TSV or XLSX. Cues are found by their times.
    out
        The new file, which may be the template itself. It appears whole.
    locale
        The locale of the texts, which are in ``translated_text``, or else in the column of this locale. Texts
        in the source locale are in ``text``.
    corrections
        A run of `generate` whose corrected texts replace those of `source`. None (default) writes none.
    progress
        False prints no report.

    Raises
    ------
    InvalidRows
        The template cannot be read, a column is missing, or a text cannot stand in such a file. Then nothing
        is written.

    Examples
    --------
    >>> report = spf.write_strings(  # doctest: +SKIP
    ...     translated, template="validators.xlf", out="validators.pt-BR.xlf", locale="pt-BR"
    ... )
    """
    locale = read_locale(locale, "locale")
    frame = _open_frame(source, "source")
    path = Path(template).expanduser()
    corrected = {} if corrections is None else _read_corrections(corrections, locale)
    given = _read_given(_select_rows(frame, path, locale), locale, corrected)
    report = fill_file(given, path, Path(out).expanduser(), locale)
    print_line(str(report), shown=progress)
    return report


def _open_frame(source: Any, name: str) -> "pd.DataFrame":
    """Return a frame, a run, the path of a run, or any other table as a frame."""
    import pandas as pd

    if isinstance(source, (str, PathLike)) and Path(source).suffix.lower() not in TABLE_SUFFIXES:
        source = open_run(source)
    if isinstance(source, StoredRun):
        return source.to_pandas()
    if isinstance(source, pd.DataFrame):
        return source
    found: pd.DataFrame = read_table(source, name)[0].to_pandas()
    return found


def _select_rows(frame: "pd.DataFrame", template: Path, locale: str) -> "pd.DataFrame":
    """Return the rows of a locale, and of the template if the frame has several files."""
    if "locale" in frame:
        ids = frame["row_id"] if "row_id" in frame else [""] * len(frame)
        # Rows that were invalid have no locale but in their row id.
        named = (
            id_.rpartition("/")[2] if is_missing(one) else str(one)
            for one, id_ in zip(frame["locale"], ids, strict=True)
        )
        frame = frame[[bool(one) and read_locale(one, "source") == locale for one in named]]
        if frame.empty:
            raise refuse("locale", f"is {locale}, which no row has", "a locale of the run")
    names = [str(name) for name in frame["file"].unique()] if "file" in frame else []
    if not names[1:]:
        return frame
    # A template in another locale has another name, such as film.de.srt for film.en.srt.
    alike = [name for name in names if _get_outline(name) == _get_outline(template.name)]
    found = [template.name] if template.name in names else alike
    if len(found) != 1:
        fault = f"{template.name} is none of the files of the rows"
        raise refuse("template", fault, f"{', '.join(names)}, or rows of one file")
    return frame[frame["file"] == found[0]]


def _get_outline(name: str) -> tuple[str, str]:
    return name.partition(".")[0], name.rpartition(".")[2]


def _read_given(frame: "pd.DataFrame", locale: str, corrected: Mapping[str, str]) -> list[StringEntry]:
    name = "translated_text" if "translated_text" in frame else locale
    if name not in frame and "source_locale" in frame and set(frame["source_locale"]) == {locale}:
        name = "text"
    if name not in frame or not {"unit", "id"} & {*frame.columns}:
        missing = name if name not in frame else "unit"
        raise refuse("source", f"has no column {missing!r}", ", ".join(map(str, frame.columns)))
    status = "speech_status" if "speech_status" in frame else "status"
    columns = frame.reindex(columns=[name, "id", "unit", "start_s", "end_s", status]).astype(object)
    found = []
    for values in columns.itertuples(index=False):
        text, id_, unit, start_s, end_s, state = (None if is_missing(one) else one for one in values)
        entry = StringEntry(str(id_ if unit is None else unit), 0, "", corrected.get(str(id_), ""))
        if start_s is not None and end_s is not None:
            entry.start_ms, entry.end_ms = round(1000 * float(start_s)), round(1000 * float(end_s))
        if state is not None and state not in _DONE:
            entry.state = str(state)
        elif text is not None and str(id_) not in corrected:
            entry.target = str(text)
        found.append(entry)
    return found


def _read_corrections(source: Any, locale: str) -> dict[str, str]:
    """Return the corrected texts of a locale by id."""
    frame = _open_frame(source, "corrections")
    if missing := [name for name in ("id", "spoken_text", "corrected_from") if name not in frame]:
        raise refuse("corrections", f"has no column {missing[0]!r}", "a run of generate with corrected texts")
    if "locale" in frame:
        frame = frame[[read_locale(str(one), "corrections") == locale for one in frame["locale"]]]
    frame = frame[frame["corrected_from"].notna() & frame["spoken_text"].notna()]
    return dict(zip(frame["id"].map(str), frame["spoken_text"].map(str), strict=True))
