# ruff: noqa: RUF001, RUF002  (some IPA letters look like other letters)
"""Convert IPA to the phoneme mnemonics of espeak.

espeak spells phonemes with ASCII mnemonics, and each language has its own set in
the data of the library. The library returns the IPA of each mnemonic. So the map
from IPA is computed for each language, and contains exactly the sounds of the
language.
"""

import string
import struct
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from speechframe.errors import EngineError
from speechframe.local.engines.espeak import library as espeak_library

_ENTRY_STRUCT = struct.Struct("<4sIHBBBBBB")
"""A phoneme in the file of phoneme tables."""
_NAME_BYTES = 32
"""Length of the name of a phoneme table in this file."""
_VOWEL_KIND, _FIRST_KIND, _LAST_KIND = 2, 2, 8
"""Types of phonemes: vowels, first and last used type. Other types are pauses, stress and helpers."""

_NOT_IPA_CHARACTERS = frozenset(string.punctuation + string.whitespace)
"""Characters that are not IPA. The library returns its own spelling for a phoneme without IPA."""

_STRESS_MARKS = {"ˈ": "'", "ˌ": ","}
"""IPA stress mark to espeak's stress mark."""
_LENGTH_MARK = "ː"
_IGNORED_SYMBOLS = frozenset("./[]‿͜͡|‖ˑ̯-")
"""IPA characters without effect here: syllable dots, tie bars, and slashes and brackets around a word."""

# Other spellings of IPA symbols, and the usual spelling.
_SYMBOL_SPELLINGS = {
    "g": "ɡ",
    "ʧ": "tʃ",
    "ʤ": "dʒ",
    "ʦ": "ts",
    "ʣ": "dz",
    "ɝ": "ɜː",
    "'": "ˈ",
    ":": "ː",
    ",": "ˌ",
    "ɫ": "l",
}
_NEAREST_SOUNDS = {
    line.split()[0]: unicodedata.normalize("NFD", line).split()[1:]
    for line in """
    i iː ɪ
    ɪ i iː
    e eː ɛ ei e̞
    ɛ e eː æ e̞
    æ ɛ a aː e
    a ɑ ä aː ɑː æ ɐ ʌ
    ɑ a ɑː ä aː ɒ
    ɒ ɔ o ɑ
    ɔ o ɔː oː o̞
    o ɔ oː oʊ o̞
    ʊ u uː ɯ ɯᵝ
    u uː ʊ ɯ ɯᵝ
    ʌ a ɐ ɑ ä ə
    ɐ a ʌ ɑ ä ə
    ə ɐ ʌ a ɜː ɛ e
    ɚ ə ɜː ɛ e
    ɜ ɜː ə ɛ e
    ɨ ɪ i
    ʉ u uː
    ɯ u uː
    ɤ o ʌ
    y yː ʏ i
    ʏ y yː u i
    ø œ øː e
    œ ø ɛ
    p pʰ
    b b̥ p
    t t̪ tʰ
    d d̪
    k kʰ
    ɡ k
    q k
    c tʃ k
    ɟ dʒ j
    ʈ t
    ɖ d
    ʔ
    m mː
    n n̪ n̺
    ɲ n
    ɳ n
    ŋ n
    s s̺ s̪ ʃ
    z s z̪ s̺
    ʃ ʂ ɕ s
    ʒ ʐ ʑ z ʃ
    ɕ ʃ s
    ʑ ʒ z
    ʂ ʃ s
    ʐ ʒ z
    θ t s
    ð d z
    f ɸ p
    ɸ f
    v ʋ f b
    ʋ v w
    β b v
    w ʋ u v
    x χ h
    χ x h
    ħ h x
    h x ħ ɦ
    ɦ h
    ç ʃ x
    ɣ ɡ x
    ʁ ʀ r ɣ
    ʀ ʁ r
    r ɾ ɹ ʁ ʀ
    ɾ r ɹ
    ɹ r ɾ ʁ ɻ
    ɻ ɹ r
    l ɭ l̩
    ɬ l
    ɭ l
    ʎ l
    j i
    """.splitlines()
    if line.strip()
}
"""Sound to similar sounds, the most similar first. They replace a sound that a language lacks.

A sound without similar sounds is silent if the language lacks the sound.
"""


def convert_ipa(ipa: str, language: str) -> str:
    """Convert IPA to ``[[...]]`` with the mnemonics of a language.

    Parameters
    ----------
    ipa
        One or several words, separated by spaces. Slashes or brackets around a word, syllable dots and tie
        bars are ignored.
    language
        espeak's identifier, such as ``gmw/en-US``.

    Raises
    ------
    EngineError
        The language lacks the sound of a symbol, or there is no sound at all. The message lists the symbols.

    Examples
    --------
    >>> convert_ipa("təˈmɑːtoʊ", "gmw/en-US")
    "[[t|@|m|'A:|t|oU]]"
    """
    words = [_spell_word(word, ipa, language) for word in ipa.split()]
    if not any(words):
        raise EngineError(f"the pronunciation {ipa!r} contains no sound in IPA")
    return " ".join(f"[[{word}]]" for word in words if word)


def _spell_word(word: str, whole: str, language: str) -> str:
    known = _map_mnemonics(language)
    longest = max(map(len, known))
    symbols = _normalise_ipa(word)
    spelled: list[str] = []
    unknown: list[str] = []
    stress = ""
    at = 0
    while at < len(symbols):
        if symbols[at] in _STRESS_MARKS:
            stress = _STRESS_MARKS[symbols[at]]
            at += 1
            continue
        length, mnemonic = _match_phoneme(symbols, at, known, longest)
        if mnemonic is None:
            unknown.append(symbols[at])
        elif mnemonic:
            # espeak writes stress before the vowel. IPA writes stress before the syllable.
            is_vowel = mnemonic in _list_vowels(language)
            spelled.append(f"{stress}{mnemonic}" if is_vowel else mnemonic)
            stress = "" if is_vowel else stress
        at += length
    if unknown:
        named = ", ".join(
            f"{symbol!r} ({unicodedata.name(symbol, '?')})" for symbol in dict.fromkeys(unknown)
        )
        raise EngineError(
            f"the pronunciation {whole!r} has symbols that are not sounds of this voice's language: {named}; "
            "write IPA, or another word with type SAY_AS"
        )
    return "|".join(spelled)


def _normalise_ipa(word: str) -> str:
    replaced = "".join(_SYMBOL_SPELLINGS.get(symbol, symbol) for symbol in word)
    return "".join(
        symbol for symbol in unicodedata.normalize("NFD", replaced) if symbol not in _IGNORED_SYMBOLS
    )


def _match_phoneme(symbols: str, at: int, known: Mapping[str, str], longest: int) -> tuple[int, str | None]:
    """Return the number of symbols of the longest phoneme at `at`, and its mnemonic.

    The mnemonic is "" for a silent symbol, and None for an unknown symbol.
    """
    for length in range(min(longest, len(symbols) - at), 0, -1):
        if (mnemonic := known.get(symbols[at : at + length])) is not None:
            return length, mnemonic
    if symbols[at] == _LENGTH_MARK:
        return 1, known.get(_LENGTH_MARK, "")
    return 1, _find_neighbour(symbols[at], known)


def _find_neighbour(symbol: str, known: Mapping[str, str]) -> str | None:
    for other in _NEAREST_SOUNDS.get(symbol, ()):
        if not other or other in known:
            return known.get(other, "")
    return None


@lru_cache(maxsize=128)
def _list_vowels(language: str) -> frozenset[str]:
    return frozenset(mnemonic for mnemonic, kind in _read_phonemes(language) if kind == _VOWEL_KIND)


@lru_cache(maxsize=128)
def _map_mnemonics(language: str) -> Mapping[str, str]:
    """Return IPA to mnemonic for a language. If mnemonics have the same IPA, the plainest is returned."""
    table = sorted(_read_phonemes(language), key=lambda entry: _rank_plainness(entry[0]))
    found: dict[str, str] = {}
    # The result at the beginning of a word overrides the others, because a sound may change elsewhere, as the
    # t of "water" does.
    for before, after in (("", "a"), ("a", "a"), ("a", "")):
        found = (
            _read_names(language, [name for name, kind in table if kind != _VOWEL_KIND], before, after)
            | found
        )
    for before, after in (("m", "m"), ("m", "")):
        found = (
            _read_names(language, [name for name, kind in table if kind == _VOWEL_KIND], before, after)
            | found
        )
    return found


def _read_names(language: str, names: list[str], before: str, after: str) -> dict[str, str]:
    """Return IPA to mnemonic for each of `names`, as the library reads it between two other phonemes."""
    spellings = tuple(_bracket_names(before, name, after) for name in names)
    *sounds, left, right = espeak_library.find_phoneme_ipa(
        language, (*spellings, _bracket_names(before), _bracket_names(after))
    )
    found: dict[str, str] = {}
    for name, ipa in zip(names, sounds, strict=True):
        sound = _remove_stress(ipa).removeprefix(_remove_stress(left)).removesuffix(_remove_stress(right))
        if (
            sound
            and _remove_stress(ipa) == _remove_stress(left) + sound + _remove_stress(right)
            and not set(sound) & _NOT_IPA_CHARACTERS
        ):
            found.setdefault(sound, name)
    return found


def _bracket_names(*names: str) -> str:
    return f"[[{'|'.join(name for name in names if name)}]]"


def _remove_stress(ipa: str) -> str:
    return "".join(symbol for symbol in unicodedata.normalize("NFD", ipa) if symbol not in "ˈˌ0123456789")


def _rank_plainness(mnemonic: str) -> tuple[int, int, str]:
    odd = sum(not character.isalpha() and character not in "@:" for character in mnemonic)
    return odd, len(mnemonic), mnemonic


@lru_cache(maxsize=128)
def _read_phonemes(language: str) -> tuple[tuple[str, int], ...]:
    """Return mnemonic and type of each phoneme of a language, including inherited phonemes."""
    data_folder = Path(espeak_library.find_data_path())
    tables = list(_parse_phoneme_tables((data_folder / "phontab").read_bytes()))
    names = {name: number for number, (name, _, _) in enumerate(tables)}
    index = next(names[name] for name in _list_table_names(data_folder, language) if name in names)
    by_code: dict[int, tuple[str, int]] = {}
    chain = []
    while index >= 0:
        chain.append(index)
        index = tables[index][1] - 1
    for index in reversed(chain):
        by_code.update(tables[index][2])
    return tuple(
        (mnemonic, kind)
        for mnemonic, kind in by_code.values()
        if _FIRST_KIND <= kind <= _LAST_KIND and mnemonic
    )


def _list_table_names(data_folder: Path, language: str) -> Iterator[str]:
    """Yield possible names of a language's phoneme table, from the voice file of the language."""
    lines = (data_folder / "lang" / language).read_text(encoding="utf-8").splitlines()
    entries = dict(line.split(None, 1) for line in reversed(lines) if len(line.split(None, 1)) > 1)
    for key in ("phonemes", "language"):
        name = entries.get(key, "").partition(" ")[0]
        yield from (name, name.partition("-")[0])


def _parse_phoneme_tables(data: bytes) -> Iterator[tuple[str, int, dict[int, tuple[str, int]]]]:
    """Yield the name of each table, the number of its base table (0: none), and code to mnemonic and type."""
    at = 4
    for _ in range(data[0]):
        count, builds_on = data[at], data[at + 1]
        name = data[at + 4 : at + 4 + _NAME_BYTES].split(b"\0")[0].decode()
        at += 4 + _NAME_BYTES
        phonemes = {}
        for entry in _ENTRY_STRUCT.iter_unpack(data[at : at + count * _ENTRY_STRUCT.size]):
            mnemonic, _, _, code, kind, *_ = entry
            phonemes[code] = (mnemonic.rstrip(b"\0").decode("latin-1"), kind)
        at += count * _ENTRY_STRUCT.size
        yield name, builds_on, phonemes
