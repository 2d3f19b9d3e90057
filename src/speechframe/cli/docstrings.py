"""Read the summary and the parameters of NumPy docstrings, and convert them into help texts of commands."""

import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

_SECTION_RULE = re.compile(r"^-{3,}$")
"""The line under the heading of a section."""
_ROLE_PATTERN = re.compile(r":\w+:`~?([^`]+)`")
"""A reference of reStructuredText, such as ``:class:`~speechframe.Run```."""
_LITERAL_PATTERN = re.compile(r"``?([^`]+)``?")
_COLUMN_PATTERN = re.compile(r"""(?:\w+=)?col\(["'](\w+)["']\)""")
"""A column in a docstring or message, such as ``voice=col("speaker")``."""
_COLUMNS_PART_PATTERN = re.compile(r"; --[\w-]+-col .*$", re.DOTALL)
"""The end of a help text from its first mention of an option for columns."""
# An argument in a message, such as model="falcon-2" or tags={"team": ...}. A value may be missing.
_ARGUMENT_PATTERN = re.compile(
    r"""(?<![\w/.=-])([a-z_]+)="""
    r"""(?:\{"(\w+)": ([^{}]*)\}|"([^"]*)"|'([^']*)'|([^\s,;:()\[\]{}]+)|(?=[\s,;:]|$))"""
)
_PARAMETER_PATTERN = re.compile(r"(?<![\w/.=-])[a-z]+(?:_[a-z]+)+(?![\w/=(])")
"""A name with an underscore in a message, such as ``max_credits``."""
_VOICES_PATTERN = re.compile(r"""\bvoices\((?:"([\w-]+)")?\)""")
_RETURN_PREFIX_PATTERN = re.compile(r"^Return an? \S+ with ")


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


def read_docstring(docstring: str | None) -> Help:
    """Return the parts of `docstring`, without markup.

    Examples
    --------
    >>> read_docstring(read_docstring.__doc__).summary
    'Return the parts of docstring, without markup.'
    """
    lines = inspect.cleandoc(docstring or "").splitlines()
    sections = [i for i in range(len(lines) - 1) if lines[i] and _SECTION_RULE.match(lines[i + 1])]
    head = lines[: sections[0]] if sections else lines
    summary, _, body = "\n".join(head).strip().partition("\n\n")
    parameters: dict[str, str] = {}
    for i, start in enumerate(sections):
        if lines[start] == "Parameters":
            end = sections[i + 1] if i + 1 < len(sections) else len(lines)
            parameters = _read_parameters(lines[start + 2 : end])
    return Help(_shorten_summary(summary), strip_markup(body.strip()), parameters)


def _shorten_summary(summary: str) -> str:
    # Shorten "Return a Run with every row spoken." to "Every row spoken.", because a command returns no Run.
    summary = _RETURN_PREFIX_PATTERN.sub("", strip_markup(" ".join(summary.split())))
    return summary[:1].upper() + summary[1:]


def _read_parameters(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in lines:
        if line and not line.startswith(" "):
            names = [name.strip("* ") for name in line.partition(" : ")[0].split(",")]
            found.update({name: [] for name in names})
        elif line.strip():
            for name in names:
                found[name].append(line.strip())
    return {name: replace_columns(strip_markup(" ".join(texts)), name) for name, texts in found.items()}


def strip_markup(text: str) -> str:
    """Remove the markup of reStructuredText from `text`.

    Examples
    --------
    >>> strip_markup("See :class:`~speechframe.Run` and ``id``.")
    'See speechframe.Run and id.'
    """
    return _LITERAL_PATTERN.sub(r"\1", _ROLE_PATTERN.sub(r"\1", text))


def replace_columns(text: str, parameter: str) -> str:
    """Replace each ``col("x")`` in `text` with the option that passes a column to the parameter.

    Examples
    --------
    >>> replace_columns('did you mean voice=col("speaker")?', "voice")
    'did you mean --voice-col speaker?'
    """
    return _COLUMN_PATTERN.sub(rf"{make_option_name(parameter)}-col \1", text)


def replace_arguments(message: str, options: Collection[str]) -> str:
    """Replace Python arguments in a message with the options of a command. Other words do not change.

    `options` are the names of the command's options.

    Examples
    --------
    >>> options = {"--model", "--max-credits", "--tag"}
    >>> replace_arguments('max_credits=9 is too small; raise max_credits', options)
    '--max-credits 9 is too small; raise --max-credits'
    >>> replace_arguments('model="falcon-2"; see voices("falcon-2")', options)
    '--model falcon-2; see speechframe voices --model falcon-2'
    >>> replace_arguments('Give tags={"team": ...}', options)
    'Give --tag team=...'
    """

    def replace_argument(match: re.Match[str]) -> str:
        name, key, value = match[1], match[2], next((group for group in match.groups()[2:] if group), "")
        option = make_option_name(name)
        if key:
            option = option.removesuffix("s")
            value = f"{key}={value.strip(chr(34))}"
        if option not in options:
            return match[0]
        return {"True": option, "False": f"--no-{option[2:]}"}.get(value, f"{option} {value}".rstrip())

    def replace_name(match: re.Match[str]) -> str:
        option = make_option_name(match[0])
        return option if option in options else match[0]

    message = _VOICES_PATTERN.sub(
        lambda match: "speechframe voices" + (f" --model {match[1]}" if match[1] else ""), message
    )
    return _PARAMETER_PATTERN.sub(replace_name, _ARGUMENT_PATTERN.sub(replace_argument, message))


def remove_columns_part(text: str) -> str:
    """Remove the end of a help text, from its first mention of an option for columns.

    Used for a command that takes no table.

    Examples
    --------
    >>> remove_columns_part("Id or name; --voice-col x takes it from a column. So do all.")
    'Id or name.'
    """
    return _COLUMNS_PART_PATTERN.sub(".", text)


def make_option_name(parameter: str) -> str:
    """Return the name of the option for a parameter.

    Examples
    --------
    >>> make_option_name("sample_rate")
    '--sample-rate'
    """
    return "--" + parameter.replace("_", "-")
