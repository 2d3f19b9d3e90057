"""Read the summary and the parameters of NumPy docstrings, and convert them into help texts of commands."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_RULE = re.compile(r"^-{3,}$")
"""The line under the heading of a section."""
_ROLE = re.compile(r":\w+:`~?([^`]+)`")
"""A reference of reStructuredText, such as ``:class:`~speechframe.Run```."""
_LITERAL = re.compile(r"``?([^`]+)``?")
_COLUMN = re.compile(r"""(?:\w+=)?col\(["'](\w+)["']\)""")
"""A column in a docstring or message, such as ``voice=col("speaker")``."""
_OF_COLUMNS = re.compile(r"; --[\w-]+-col .*$", re.DOTALL)
"""The end of a help text from its first mention of an option for columns."""
_RETURNS = re.compile(r"^Return an? \S+ with ")


@dataclass(frozen=True)
class Help:
    """The parts of a docstring that a command shows.

    Parameters
    ----------
    summary
        The first paragraph as one line. If it starts with "Return a ... with", these words are left out.
    body
        The paragraphs between the summary and the first section.
    parameters
        Description of each parameter on one line, by the name of the parameter.
    """

    summary: str = ""
    body: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


def read(docstring: str | None) -> Help:
    """Return the parts of `docstring`, without markup.

    Examples
    --------
    >>> read(read.__doc__).summary
    'Return the parts of docstring, without markup.'
    """
    lines = inspect.cleandoc(docstring or "").splitlines()
    sections = [i for i in range(len(lines) - 1) if lines[i] and _RULE.match(lines[i + 1])]
    head = lines[: sections[0]] if sections else lines
    summary, _, body = "\n".join(head).strip().partition("\n\n")
    parameters: dict[str, str] = {}
    for i, start in enumerate(sections):
        if lines[start] == "Parameters":
            end = sections[i + 1] if i + 1 < len(sections) else len(lines)
            parameters = _parameters(lines[start + 2 : end])
    return Help(_summary(summary), plain(body.strip()), parameters)


def _summary(words: str) -> str:
    # Shorten "Return a Run with every row spoken." to "Every row spoken.", because a command returns no Run.
    words = _RETURNS.sub("", plain(" ".join(words.split())))
    return words[:1].upper() + words[1:]


def _parameters(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in lines:
        if line and not line.startswith(" "):
            names = [name.strip("* ") for name in line.partition(" : ")[0].split(",")]
            found.update({name: [] for name in names})
        elif line.strip():
            for name in names:
                found[name].append(line.strip())
    return {name: with_options(plain(" ".join(words)), name) for name, words in found.items()}


def plain(words: str) -> str:
    """Remove the markup of reStructuredText from `words`.

    Examples
    --------
    >>> plain("See :class:`~speechframe.Run` and ``id``.")
    'See speechframe.Run and id.'
    """
    return _LITERAL.sub(r"\1", _ROLE.sub(r"\1", words))


def with_options(words: str, parameter: str) -> str:
    """Replace each ``col("x")`` in `words` with the option that passes a column to the parameter.

    Examples
    --------
    >>> with_options('did you mean voice=col("speaker")?', "voice")
    'did you mean --voice-col speaker?'
    """
    return _COLUMN.sub(rf"{option_name(parameter)}-col \1", words)


def without_columns(words: str) -> str:
    """Remove the part of a help text that concerns columns, for a command that takes no table.

    Examples
    --------
    >>> without_columns("Id or name; --voice-col x takes it from a column. So do all.")
    'Id or name.'
    """
    return _OF_COLUMNS.sub(".", words)


def option_name(parameter: str) -> str:
    """Return the name of the option for a parameter.

    Examples
    --------
    >>> option_name("sample_rate")
    '--sample-rate'
    """
    return "--" + parameter.replace("_", "-")
