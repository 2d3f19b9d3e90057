r"""Find code in texts for people, such as placeholders, tags and URLs. Translations must not change code.

:func:`find_code` returns everything that is certainly code. :func:`count_signs` counts everything else that
looks like code, so that a translation with changed code of an unknown form can be refused. The forms belong
to these frameworks:

======================= ==================================================================================
braces                  Python, .NET, Java and ICU messages, Rust, Fluent, Vue, Angular, i18next,
                        Handlebars, Jinja, Django, Twig, Ruby (``#{x}``), Rails (``%{x}``), shell
percent                 C, Python, Java, PHP, Go, Android, iOS, Ruby (``%<x>s``), Qt (``%1``, ``%n``),
                        strftime (``%Y-%m-%d``), Symfony (``%name%``), Windows (``%1!s!``)
dollar                  shell, PHP, MediaWiki (``$1``), browser extensions (``$NAME$``), i18next (``$t(x)``)
colon, at, exclamation  Laravel (``:name``), Vue (``@:key``), Drupal (``@name``, ``!name``), Android
                        (``@string/name``)
brackets                shortcodes, rule tables (``[_1]``, ``[1,*]``), date patterns (``[.uuuuuu]``), pauses
tags                    HTML, XML, react-i18next (``<0>``), ERB, PHP
others                  escapes (``\n``), entities, URLs, e-mail addresses, file paths, code in backticks,
                        marks of Markdown, ``snake_case``, ``call()``, ``key=value``
======================= ==================================================================================
"""

import re
from collections import Counter
from collections.abc import Iterator

# Each repetition is possessive, has a bound, or has its own end character. So matching takes linear time.
TAG_PATTERN = (
    # An attribute in quotes may contain ">", which does not end the tag then.
    r"<!--(?:(?!<!--).)*?--> | </?(?:[A-Za-z](?:[^<>\"']|\"[^\"]*\"|'[^']*')*+|\d{1,3}\s?/?)>"
    r" | </?[A-Za-z][^<>]*> | <[?%](?:(?!<[?%]).)*?[?%]> | <![A-Za-z\[][^<>]*> | </?>"
).replace(" | ", "|")
"""Pattern of a tag of HTML, XML, ERB or PHP, or of a comment. It has no group and needs ``re.DOTALL``."""

ICU_BRANCHES_START = r"[$#%]?\{\s*[\w.]+\s*,\s*(?:plural|selectordinal|select)\s*,"
"""Pattern of the start of an ICU message with branches, such as ``{n, plural,``."""

# A sign after a number is ordinary text in German "10 %ige Lösung" and French "5 $US".
_NOT_AFTER_NUMBER = r"(?<!\d)(?<!\d[ \u00a0\u202f])"
# A field of a date pattern, such as yyyy or MM.
_DATE_FIELD = (
    r"(?:Y{1,4}|y{1,4}|M{1,4}|D{1,4}|d{1,4}|H{1,2}|h{1,2}|m{1,2}|s{1,2}|S{1,9}|u{1,9}|TZ|T|Z{1,5}|z|[aA])"
)
# A form begins with a sign or at the start of a word. The two lookaheads skip all other places quickly.
_CODE_FORMS = re.compile(
    rf"""
    (?=[$\#%@*:{{\[<&\\!~/.`(\]^-]) (?:
    (?P<braces> [$#%@*]?:?\{{ )
  | (?P<square> \[\[[^\[\]\s]*\]\] | \[[^\[\]]*\] )
  | (?P<path> (?<![^\s("'=])(?:(?:~|\.{{1,2}})/[\w./*-]+ | ~?/[\w.-]+(?:/[\w.*-]*)+)
        | (?<!\S)\\\\[\w.$-]{{2,}}\\[^\s"<>|]+
        | (?<!\S)--?[A-Za-z][\w.-]*=[^\s=<>][^\s<>]* )
  | (?P<tag> {TAG_PATTERN} )
  | (?P<entity> &(?:\#\d{{1,7}}|\#x[0-9a-fA-F]{{1,6}}|[A-Za-z]\w{{1,30}}); )
  | (?P<escape> \\[A-Za-z]{{2,20}}(?=\{{) | (?:\\\\?+(?:u[0-9a-fA-F]{{4}}|u\{{[0-9a-fA-F]{{1,6}}\}}
        |x[0-9a-fA-F]{{2}}|U[0-9a-fA-F]{{8}}|[A-Za-z]\[\d{{1,9}}\]|[^\s\\])|\\\\)++ )
  | (?P<percent> %\([\w.-]+\)[#0+\-\ ]{{0,5}}\d{{0,9}}(?:\.\d{{1,9}})?[A-Za-z]
        | %<\w+>(?:[#0+\-]{{0,5}}\d{{0,9}}(?:\.\d{{1,9}})?[A-Za-z](?![A-Za-z]))?
        | (?<![\d%])%(?:\d{{1,9}}\$)?\#@\w+@
        | (?<!\d)%[\-_0^\#]?[A-Za-z](?:[\-/:.]%[\-_0^\#]?[A-Za-z])+(?![A-Za-z])
        | (?<![\d%])%(?:\d{{1,9}}\$|<)?(?:[#0+\-,(]|'.){{0,5}}(?:\d{{1,9}}|\*)?(?:\.(?:\d{{1,9}}|\*))?
          (?:hh|h|ll|l|L|q|j|z|t|T|I64|I32)?[A-Za-z@](?![A-Za-z0-9@])
        | {_NOT_AFTER_NUMBER}%\ (?:d|\d{{0,9}}\.?\d{{1,9}}[df])(?![\w'\u2019])
        | (?<![\d%])%\d{{1,2}}![^!\s]{{1,9}}!
        | {_NOT_AFTER_NUMBER}%[A-Za-z_](?:[\w.-]*\w)?%? | %% )
  | (?P<number> (?<![\d%])%L?\d(?!\d|[.,]\d) )
  | (?P<dollar> \$t\((?:[^()]|\([^()]*\))*+\) | \$\([^()\n]*\)
        | (?<!\w){_NOT_AFTER_NUMBER}\$[A-Za-z_]\w*+\$? | (?<!\w)\$[1-9](?!\d|[.,]\d) )
  | (?P<name> (?<![\w@/])@(?:\.\w+)?:?(?:\([^()\s]*\)|[A-Za-z_](?:[\w.\-/]*\w)?) | (?<![^\s(])![a-z_]\w++
        | (?<![\w"')\]}}:\u00bb\u201d\u2019%@.]):[A-Za-z_](?:[\w-]*\w)?:? )
  | (?P<other> (?<!`)`++[^`'\n]++`++ | \]\([^\s()]*\) | \(\(\w+\)\)
        | (?<!\w)(?P<mark>[\#~^]{{1,2}})[A-Za-z_]\w*+(?P=mark)(?!\w)
        | (?<![*~])(?:\*{{2,3}}|~~)(?![*~\s]) | (?<![*~\s])(?:\*{{2,3}}|~~)(?![*~]) )
  )
  | (?<![A-Za-z0-9_])(?=[A-Za-z0-9_]) (?:
    (?P<address> (?:https?|ftp|file)://[^\s<>"'{{}}]+ | www\.[^\s<>"'{{}}]+\.[^\s<>"'{{}}]+
        | (?<!\w)[A-Za-z]:\\[^\s"<>|]+ | (?<!\S)[A-Za-z][\w.-]*=[^\s=<>][^\s<>]* )
  | (?P<mail> (?:mailto:)?[\w.+-]{{1,64}}@[\w-]+(?:\.[\w-]+)+ )
  | (?P<date> (?<!\w){_DATE_FIELD}(?:[-/.:\[\]',T]{{1,4}}{_DATE_FIELD})+(?!\w)\]* )
  | (?P<office> _x[0-9a-fA-F]{{4}}_ )
  | (?P<word> __[a-z]\w*?__(?!\w) | (?<![\w.])[A-Za-z_][\w.]*\(\)
        | (?<!\w)[^\W_]{{2,}}+(?:_+[^\W_]++)++(?!\w) )
  )
    """,
    re.VERBOSE | re.DOTALL,
)
_SENTENCE_PUNCTUATION = ".,;:!?)]}\u00bb\u201d\u2019"
"""Characters at the end of an address or path that belong to the sentence around it."""

# Code in braces has a sign, begins with a digit, has no whitespace, or is an argument of an ICU message.
_CODE_IN_BRACES = re.compile(r"\A\W|\A\d|\A\S*\Z|[$%#:|=()\[\]\"<>_{}@+*/\\]|\A[\w.]+\s*,\s*\w+\s*(?:,|\Z)")
# A doubled letter. A date pattern must contain one, such as the dd of dd/MM.
_DOUBLED_LETTER = re.compile(r"([A-Za-z])\1")
# Signs and beginnings of text in square brackets that is code.
_CODE_SIGN_IN_BRACKETS = re.compile(r"[_*$@#%|^~\\=]")
_CODE_START_IN_BRACKETS = re.compile(r"[./*:-]\w|[bius]\Z|\d{1,9},(?:\d|\*)|\s?(?i:pause|break)\b")
# Signs of code that `count_signs` counts outside of braces.
_CODE_SIGNS = re.compile(
    rf"""
    (?=[\[\](<>|\\^*~%$@&:_=-]) (?: \[\[[^\[\]]*\]\] | \(\([^()]*\)\) | [<>|\\^]
      | \]\( | [\[\]] | \*{{2,}} | ~{{2,}}
  | {_NOT_AFTER_NUMBER}%(?=[^\W\d]|[({{<]) | {_NOT_AFTER_NUMBER}\$(?=[^\W\d]|[({{])
  | @(?=\w|[.:({{]) | (?<!\w)&(?=\w) | (?<![\w"')\]}}:\u00bb\u201d\u2019%]):(?=[^\W\d]) | ::
  | _+(?=[^\W_]) | (?<=[^\W_])_+ | (?<=\w)=(?=\w) | (?<!\S)--[A-Za-z][\w-]* )
  | (?<!\w)[^\W\d_]{{2,}}(?:\.[^\W\d_]{{2,}})+
    """,
    re.VERBOSE,
)


UNSPEAKABLE_KINDS = frozenset({"braces", "tag", "entity", "escape", "percent", "office"})
"""Kinds of code that no voice should speak. The other kinds also occur in ordinary texts."""


def find_code(text: str, kinds: frozenset[str] = frozenset()) -> list[tuple[int, int]]:
    r"""Return the start and end of each piece of code in a text, in order, none inside another.

    An ICU message is one piece, with all its branches. `kinds` selects kinds of code (default: all).

    Examples
    --------
    >>> text = r"Welcome, :Name\n (%1$d {n, plural, one {file} other {files}}) at 7:45, 50 % of"
    >>> [text[start:end] for start, end in find_code(text)]
    [':Name', '\\n', '%1$d', '{n, plural, one {file} other {files}}']
    """
    return [(start, end) for kind, start, end in iter_code(text) if not kinds or kind in kinds]


def count_signs(text: str) -> Counter[str]:
    """Count the signs of code in a text.

    The pieces of :func:`find_code` must be removed from the text before. If the counts of a text and of its
    translation differ, the translation changed code of an unknown form.

    Examples
    --------
    >>> count_signs("{ user name } | at 7:45, 50 % of, and/or, e.g.")
    Counter({'{ user name }': 1, '|': 1})
    """
    ends = find_closing_braces(text)
    found: Counter[str] = Counter()
    rest, position = [], 0
    for brace in re.finditer(r"[{}]", text):
        if brace.start() < position:
            continue
        rest.append(text[position : brace.start()])
        position = ends.get(brace.start(), brace.end())
        found[text[brace.start() : position]] += 1
    found.update(_CODE_SIGNS.findall(" ".join([*rest, text[position:]])))
    return found


def find_closing_braces(text: str) -> dict[int, int]:
    """Return the end of each pair of braces by its start. Unpaired braces are ignored."""
    ends: dict[int, int] = {}
    still_open: list[int] = []
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            still_open.append(brace.start())
        elif still_open:
            ends[still_open.pop()] = brace.end()
    return ends


def iter_code(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield kind, start and end of each piece of code in a text, as in :func:`find_code`."""
    ends, position = find_closing_braces(text), 0
    while (match := _CODE_FORMS.search(text, position)) is not None:
        start, position = match.span()
        kind = match.lastgroup or ""
        if kind == "braces":
            end = ends.get(position - 1)
            if end is None or not _CODE_IN_BRACES.search(text[position : end - 1].strip()):
                continue
            position = end
        elif kind == "square" and not _is_code_in_brackets(match[0]):
            position = start + 1
            continue
        elif kind == "date" and not _DOUBLED_LETTER.search(match[0]):
            continue
        elif kind in {"address", "path"}:
            position = max(start + 1, start + len(match[0].rstrip(_SENTENCE_PUNCTUATION)))
        yield kind, start, position


def _is_code_in_brackets(piece: str) -> bool:
    inner = piece[1:-1]
    if inner.startswith("[") or _CODE_START_IN_BRACKETS.match(inner):
        return True
    has_sign = _CODE_SIGN_IN_BRACKETS.search(inner) is not None and any(map(str.isalnum, inner))
    return has_sign and (" " not in inner or "=" in inner)
