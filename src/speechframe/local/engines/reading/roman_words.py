"""Words of six languages beside which letters are a Roman numeral, such as "chapter" in "Chapter V"."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

NUMBER, MALE, FEMALE, NEUTER, KING, QUEEN = "number", "male", "female", "neuter", "king", "queen"
"""The kinds of a numeral: a number, an ordinal of a gender, or the ordinal of a king or a queen."""

AMBIGUOUS_NUMERALS = frozenset({"IV", "VI", "XX"})
"""Numerals that are also abbreviations: IV for an infusion, VI for an editor, XX for chromosomes."""


@dataclass(frozen=True, slots=True)
class Language:
    """The words of a language beside Roman numerals. Each maps to the kind of the numeral.

    Attributes
    ----------
    nouns, names
        Words before a numeral, such as "chapter" and "Henry".
    after
        Words after a numeral, such as "siècle".
    last_ordinal
        The largest number that is read as an ordinal.
    ordinals
        Ordinals from 1 to `last_ordinal`. Empty if a number with ª or º is written instead.
    suffixes
        Letters at the end of an ordinal, such as "e" in "XXe".
    """

    nouns: Mapping[str, str]
    names: Mapping[str, str]
    after: Mapping[str, str]
    last_ordinal: int = 30
    ordinals: tuple[str, ...] = ()
    suffixes: Mapping[str, str] = field(default_factory=dict)

    @property
    def suffix_letters(self) -> str:
        """The letters of all suffixes."""
        return "".join(sorted({*"".join(self.suffixes)}))


def _map_words(**words: str) -> Mapping[str, str]:
    return MappingProxyType({word: kind for kind, listed in words.items() for word in listed.split()})


_ENGLISH_ORDINALS = """
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth
fifteenth sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third
twenty-fourth twenty-fifth twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth
"""
_GERMAN_ORDINALS = """
erst zweit dritt viert fünft sechst siebt acht neunt zehnt elft zwölft dreizehnt vierzehnt fünfzehnt sechzehnt
siebzehnt achtzehnt neunzehnt zwanzigst einundzwanzigst zweiundzwanzigst dreiundzwanzigst vierundzwanzigst
fünfundzwanzigst sechsundzwanzigst siebenundzwanzigst achtundzwanzigst neunundzwanzigst dreißigst
"""
"""The stems, without their endings."""
_FRENCH_ORDINALS = """
premier deuxième troisième quatrième cinquième sixième septième huitième neuvième dixième onzième douzième
treizième quatorzième quinzième seizième dix-septième dix-huitième dix-neuvième vingtième vingt-et-unième
vingt-deuxième vingt-troisième vingt-quatrième vingt-cinquième vingt-sixième vingt-septième vingt-huitième
vingt-neuvième trentième
"""

LANGUAGES: Mapping[str, Language] = MappingProxyType(
    {
        "en": Language(
            nouns=_map_words(
                number="""
                war wars chapter chapters chap ch part parts pt volume volumes vol book books act acts scene
                section sections article articles art title type types phase phases stage stages class level
                grade group step figure figures fig table appendix annex canto psalm sonnet movement bowl unit
                module lesson season episode round division region area zone tier category schedule factor
                page plate quarter
                """
            ),
            names=_map_words(
                king="""
                Adrian Albert Alexander Alexios Alfonso Alfred Baldwin Basil Benedict Boniface Carl Celestine
                Charles Christian Clement Constantine Cyrus Darius David Edmund Edward Emmanuel Eric Eugene
                Ferdinand Francis Frederick George Gregory Gustav Haakon Harald Harold Henry Innocent Ivan
                James John Joseph Julius Justinian Kenneth Leo Leopold Louis Manuel Martin Maximilian Mehmed
                Murad Napoleon Nicholas Olaf Olav Oscar Otto Paul Peter Philip Pius Ptolemy Ramesses Ramses
                Richard Robert Rudolf Rudolph Selim Sixtus Stephen Suleiman Theodosius Thutmose Umberto Urban
                Victor Wilhelm William Xerxes
                """,
                queen="Anne Beatrix Catherine Cleopatra Elizabeth Isabella Joan Margaret Margrethe Mary",
            ),
            after=MappingProxyType({}),
            ordinals=tuple(_ENGLISH_ORDINALS.split()),
        ),
        "de": Language(
            nouns=_map_words(
                number="""
                kapitel kap teil teile band bände bd buch akt szene abschnitt artikel typ phase stufe klasse
                gruppe abbildung abb tabelle tab anhang anlage weltkrieg gesang titel kategorie lektion satz
                staffel folge hartz
                """
            ),
            names=_map_words(
                king="""
                Albert Albrecht Alexander Benedikt Bonifatius Bonifaz Carl Charles Christian Clemens Eduard
                Emanuel Ernst Ferdinand Franz Friedrich Georg Gregor Gustav Heinrich Innozenz Iwan Jakob
                Johann Johannes Joseph Julius Karl Klemens Konrad Konstantin Leo Leopold Lothar Louis Ludwig
                Maximilian Napoleon Nikolaus Otto Paul Peter Philipp Pius Ptolemäus Ramses Richard Rudolf
                Sixtus Urban Viktor Wilhelm
                """,
                queen="Beatrix Elisabeth Elizabeth Isabella Katharina Kleopatra Margarethe Margrethe Maria",
            ),
            after=_map_words(
                male="weltkrieg weltkriegs weltkrieges akt band teil",
                neuter="jahrhundert jahrhunderts jahrhunderte kapitel buch konzil",
            ),
            ordinals=tuple(_GERMAN_ORDINALS.split()),
        ),
        "fr": Language(
            nouns=_map_words(
                number="""
                chapitre chapitres chap tome partie parties acte actes scène livre volume vol section article
                art titre type phase annexe figure fig tableau niveau classe groupe guerre chant étape leçon
                saison
                """
            ),
            names=_map_words(
                king="""
                Albert Alexandre Alphonse Benoît Boniface Charles Clément Constantin Édouard Ferdinand
                François Frédéric George Georges Grégoire Guillaume Gustave Henri Innocent Jacques Jean Joseph
                Jules Léon Léopold Louis Napoléon Nicolas Othon Paul Philippe Pie Pierre Ramsès Richard Robert
                Urbain Victor Emmanuel
                """,
                queen="Catherine Cléopâtre Elisabeth Élisabeth Isabelle Marguerite Marie",
            ),
            # Before these words, even "Ve" is a numeral.
            after=_map_words(
                male="siècle siècles arrondissement congrès millénaire",
                female="république dynastie armée internationale édition",
            ),
            ordinals=tuple(_FRENCH_ORDINALS.split()),
            suffixes=_map_words(male="er e ème ième eme ᵉ", female="re ère"),
        ),
        "es": Language(
            nouns=_map_words(
                number="""
                capítulo capítulos cap parte partes tomo volumen vol libro acto escena sección artículo art
                título tipo fase etapa nivel clase grupo figura fig tabla anexo canto lección guerra temporada
                """,
                male="siglo siglos",
            ),
            names=_map_words(
                king="""
                Alejandro Alfonso Amadeo Benedicto Bonifacio Carlos Clemente Constantino Eduardo Enrique
                Federico Felipe Fernando Francisco Gregorio Guillermo Inocencio Jacobo Jaime Jorge Juan Julio
                León Leopoldo Luis Manuel Maximiliano Napoleón Nicolás Pablo Pedro Pío Ramiro Ramsés Ricardo
                Sancho Urbano Víctor
                """,
                queen="Catalina Cleopatra Isabel Juana Margarita María",
            ),
            after=_map_words(
                male="siglo congreso concilio milenio reich",
                female="guerra república internacional edición cumbre",
            ),
            last_ordinal=10,
        ),
        "pt": Language(
            nouns=_map_words(
                number="""
                parte partes tomo volume vol livro ato acto cena seção secção artigo art título tipo fase
                etapa nível classe grupo figura fig tabela anexo canto lição guerra temporada
                """,
                male="capítulo capítulos cap século séculos",
            ),
            names=_map_words(
                king="""
                Afonso Alexandre Bento Bonifácio Carlos Clemente Constantino Dinis Duarte Eduardo Fernando
                Filipe Francisco Frederico Gregório Guilherme Henrique Inocêncio João Jorge José Júlio Leão
                Leopoldo Luís Luiz Manuel Maximiliano Napoleão Nicolau Paulo Pedro Pio Ramsés Ricardo Sancho
                Sebastião Urbano
                """,
                queen="Catarina Cleópatra Elizabeth Isabel Margarida Maria",
            ),
            after=_map_words(
                male="século congresso concílio milênio milénio reich",
                female="guerra república internacional edição cúpula",
            ),
            last_ordinal=10,
        ),
        "it": Language(
            nouns=_map_words(
                number="tipo fase livello classe gruppo figura fig tabella allegato guerra stagione",
                male="""
                capitolo capitoli cap secolo secoli libro canto atto volume vol tomo articolo art titolo
                paragrafo congresso
                """,
                female="parte parti sezione scena appendice legislatura edizione",
            ),
            names=_map_words(
                king="""
                Alessandro Amedeo Benedetto Bonifacio Carlo Clemente Corrado Cosimo Costantino Edoardo
                Emanuele Enrico Federico Ferdinando Filippo Francesco Giacomo Giorgio Giovanni Giulio Gregorio
                Guglielmo Innocenzo Leone Leopoldo Luigi Massimiliano Napoleone Nicola Ottone Paolo Pietro Pio
                Ramses Riccardo Ruggero Sisto Umberto Urbano Vittorio
                """,
                queen="Caterina Cleopatra Elisabetta Isabella Margherita Maria",
            ),
            after=_map_words(
                male="secolo congresso concilio millennio reich",
                female="guerra repubblica internazionale edizione legislatura",
            ),
        ),
    }
)
"""Language code to the words of the language. Nouns are in lower case, names are capitalised."""
