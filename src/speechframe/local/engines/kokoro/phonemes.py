# ruff: noqa: RUF001, RUF002  (some IPA letters look like other letters)
"""Convert text to the phonemes of Kokoro, from the IPA of espeak-ng or from Japanese kana.

Kokoro writes a diphthong or an affricate as one symbol. For example, ``A`` is the
vowel of "day". It does not distinguish sounds whose difference is meaningless in a
language. The symbols and their meanings come from misaki, the model's own phonemiser
(Apache-2.0).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from speechframe.local.engines.espeak import library as espeak_library
from speechframe.local.engines.espeak.library import TIE_CHARACTER
from speechframe.local.engines.neural.phonemes import PHONEME_BLOCK_PATTERN, Phonemiser
from speechframe.local.engines.reading.locales import LOCALES

_SYMBOL_TABLE = """
;=1 :=2 ,=3 .=4 !=5 ?=6 —=9 …=10 "=11 (=12 )=13 “=14 ”=15 ̃=17 ʣ=18 ʥ=19 ʦ=20 ʨ=21 ᵝ=22 ꭧ=23 A=24 I=25 O=31
Q=33 S=35 T=36 W=39 Y=41 ᵊ=42 a=43 b=44 c=45 d=46 e=47 f=48 h=50 i=51 j=52 k=53 l=54 m=55 n=56 o=57 p=58
q=59 r=60 s=61 t=62 u=63 v=64 w=65 x=66 y=67 z=68 ɑ=69 ɐ=70 ɒ=71 æ=72 β=75 ɔ=76 ɕ=77 ç=78 ɖ=80 ð=81 ʤ=82
ə=83 ɚ=85 ɛ=86 ɜ=87 ɟ=90 ɡ=92 ɥ=99 ɨ=101 ɪ=102 ʝ=103 ɯ=110 ɰ=111 ŋ=112 ɳ=113 ɲ=114 ɴ=115 ø=116 ɸ=118 θ=119
œ=120 ɹ=123 ɾ=125 ɻ=126 ʁ=128 ɽ=129 ʂ=130 ʃ=131 ʈ=132 ʧ=133 ʊ=135 ʋ=136 ʌ=138 ɣ=139 ɤ=140 χ=142 ʎ=143 ʒ=147
ʔ=148 ˈ=156 ˌ=157 ː=158 ʰ=162 ʲ=164 ↓=169 →=171 ↗=172 ↘=173 ᵻ=177
"""
SYMBOLS: Mapping[str, int] = MappingProxyType(
    {" ": 16}
    | {symbol: int(number) for symbol, _, number in (entry.partition("=") for entry in _SYMBOL_TABLE.split())}
)
"""The symbols of the model, and their numbers."""


def _parse_pairs(table: str) -> tuple[tuple[str, str], ...]:
    """Parse a table with an old and a new symbol in each line. Return the pairs, longest old symbol first.

    A line without a new symbol removes the old symbol.
    """
    pairs = (line.strip().partition(" ") for line in table.strip().splitlines())
    return tuple(sorted(((old, new) for old, _, new in pairs), key=lambda pair: -len(pair[0])))


_ENGLISH_PAIRS = """
ʔˌn̩ tn
ʔn̩ tn
ʔn tn
ʔ t
a^ɪ I
a^ʊ W
d^ʒ ʤ
e^ɪ A
e A
t^ʃ ʧ
ɔ^ɪ Y
ə^l ᵊl
ʲ
ɚ əɹ
r ɹ
x k
ç k
ɐ ə
ɬ l
̃
"""
_LOCALE_PAIRS: Mapping[str, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        "en-US": _parse_pairs(
            _ENGLISH_PAIRS + "o^ʊ O\nɜːɹ ɜɹ\nɜː ɜɹ\nɪə iə\nɔː ɔ\nɑː ɑ\niː i\nuː u\nː \no ɔ\nɾ T"
        ),
        "en-GB": _parse_pairs(_ENGLISH_PAIRS + "e^ə ɛː\niə ɪə\nə^ʊ Q"),
    }
)
_OTHER_PAIRS = _parse_pairs("""
a^ɪ I
a^ʊ W
d^z ʣ
d^ʒ ʤ
e^ɪ A
o^ʊ O
ə^ʊ Q
t^s ʦ
t^ʃ ʧ
ɔ^ɪ Y
ʐ ʒ
ɫ l
""")

# Punctuation at the end of a clause. The repetitions are possessive, and a run matches only from its first
# character, so the time is linear for any text.
_CLAUSE_END_PATTERN = re.compile(
    r"(?:(?<!\s)\s++|)"
    r"((?<![;:,.!?\u2026])[;:,.!?\u2026]++(?=\s|$)|[\u3001\u3002\uff01\uff1f\uff0c\u0964]++)\s*+"
)
_MARK_TRANSLATIONS = str.maketrans("\u3001\u3002\uff01\uff1f\uff0c\u0964\u2026", ",.!?,..")
"""Punctuation of other scripts to the punctuation that the model has learnt."""
_SENTENCE_ENDS = frozenset(".!?")

_KANA_ROWS = """
 アイウエオ
k カキクケコ
ɡ ガギグゲゴ
s サ_スセソ
ʣ ザ__ゼゾ
t タ__テト
d ダ__デド
n ナ_ヌネノ
h ハ__ヘホ
b バビブベボ
p パピプペポ
m マミムメモ
ɾ ラリルレロ
j ヤ_ユ_ヨ
β ワヰ_ヱ_
v ヷヸヴヹヺ
"""
_IRREGULAR_KANA = (
    "シ=ɕi ジ=ʥi ス=sɨ ズ=zɨ チ=ʨi ヂ=ʥi ツ=ʦɨ ヅ=zɨ ニ=ɲi ヒ=çi フ=ɸɯ "
    "ヲ=o ヰ=i ヱ=e ー=ː ッ=ʔ ヶ=ke ヵ=ka ヮ=βa"
)
# Small kana, and the sounds that replace the vowel of the kana before them.
_SMALL_KANA = {"ァ": "a", "ィ": "i", "ゥ": "ɯ", "ェ": "e", "ォ": "o", "ャ": "ja", "ュ": "jɨ", "ョ": "jo"}
_PALATAL_SOUNDS = frozenset("ɕʥʨɲçj")
# The sound of ン before certain sounds, as in シンブン. Elsewhere it is ɴ.
_NASAL_SOUNDS = (("m", "mpb"), ("ŋ", "kɡ"), ("ɲ", "ɲʨʥ"), ("n", "ntdɾzʣʦ"))


def _build_kana_table() -> dict[str, str]:
    found = {}
    for row in _KANA_ROWS.strip("\n").splitlines():
        consonant, _, letters = row.rpartition(" ")
        for letter, vowel in zip(letters, "aiɯeo", strict=True):
            palatal = "ʲ" if vowel == "i" and consonant and consonant not in _PALATAL_SOUNDS else ""
            found[letter] = consonant + palatal + vowel
    return found | dict(entry.split("=") for entry in _IRREGULAR_KANA.split()) | _SMALL_KANA


_KANA_SOUNDS = MappingProxyType(_build_kana_table())


class KokoroPhonemiser(Phonemiser):
    """The phonemiser of one locale.

    Parameters
    ----------
    locale
        The locale of the text.
    """

    def __init__(self, locale: str) -> None:
        super().__init__(SYMBOLS)
        self._locale = locale

    def _phonemise(self, text: str) -> Sequence[Sequence[str]]:
        *parted, rest = _CLAUSE_END_PATTERN.split(text)
        clauses, marks = [*parted[::2], rest], [*map(_choose_mark, parted[1::2]), ""]
        sentences = [""]
        for said, mark in zip(self._convert_clauses(clauses), marks, strict=True):
            if said:
                sentences[-1] = f"{sentences[-1]} {said}{mark}".lstrip()
            if mark and mark in _SENTENCE_ENDS:
                sentences.append("")
        return [sentence for sentence in sentences if sentence]

    def _convert_clauses(self, clauses: Sequence[str]) -> list[str]:
        """Return the symbols of each clause. Text in ``[[...]]`` stays unchanged."""
        split = [PHONEME_BLOCK_PATTERN.split(clause) for clause in clauses]
        plain = iter(self._convert_texts([part for parts in split for part in parts[::2]]))
        said = ((part if index % 2 else next(plain) for index, part in enumerate(parts)) for parts in split)
        return [" ".join(" ".join(each).split()) for each in said]

    def _convert_texts(self, texts: Sequence[str]) -> list[str]:
        if self._locale == "ja-JP":
            return [_convert_kana(text) for text in texts]
        found = espeak_library.convert_to_ipa(texts, LOCALES[self._locale].language)
        # espeak also splits a clause at a bracket or a dash. Join the parts with a comma, which makes a
        # pause.
        return [
            self._convert_symbols(", ".join(self._replace_symbols(clause) for clause in clauses))
            for clauses in found
        ]

    def _replace_symbols(self, ipa: str) -> str:
        for old, new in _LOCALE_PAIRS.get(self._locale, _OTHER_PAIRS):
            ipa = ipa.replace(old, new)
        return ipa.replace(TIE_CHARACTER, "").replace("-", "")

    def _number_symbols(self, symbols: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the numbers of the symbols between two zeros, as in training, and their indices.

        Unknown symbols are left out.
        """
        ids, starts = [0], []
        for symbol in symbols:
            starts.append(len(ids))
            if symbol in SYMBOLS:
                ids.append(SYMBOLS[symbol])
        return [*ids, 0], starts


def _choose_mark(mark: str) -> str:
    """Return the model's punctuation mark for a run of punctuation, of which the first character counts."""
    return mark[:1].translate(_MARK_TRANSLATIONS)


def _convert_kana(text: str) -> str:
    """Convert kana to symbols. Other letters are left out.

    Examples
    --------
    >>> _convert_kana("シンブン ガッコー"), _convert_kana("きょう")
    ('ɕimbɯɴ ɡaʔkoː', 'kʲoɯ')
    """
    sounds = list(_split_sounds(text))
    ipa = ""
    for index, sound in enumerate(sounds):
        following = sounds[index + 1][0] if index + 1 < len(sounds) else " "
        nasal = next((nasal for nasal, before in _NASAL_SOUNDS if following in before), "ɴ")
        ipa += nasal if sound == "ン" else sound
    return ipa


def _split_sounds(text: str) -> Iterator[str]:
    sound = ""
    for letter in map(_convert_to_katakana, text):
        if letter in _SMALL_KANA and sound[-1:] in set("aiɯɨeo"):
            # In キャ, the vowel of the small letter replaces the vowel of the letter before it.
            # Before a small vowel, ウ is a consonant: ウェ is "we".
            start = "β" if sound == "ɯ" and letter in "ァィェォ" else sound[:-1]
            vowel = _SMALL_KANA[letter].removeprefix("j")
            palatal = letter in "ャュョ" and start[-1:] not in _PALATAL_SOUNDS | {"ʲ"}
            sound = start + "ʲ" * palatal + vowel
            continue
        if sound:
            yield sound
        sound = letter if letter in "ン " else _KANA_SOUNDS.get(letter, "")
    if sound:
        yield sound


def _convert_to_katakana(letter: str) -> str:
    return chr(ord(letter) + 0x60) if "\u3041" <= letter <= "\u3096" else letter
