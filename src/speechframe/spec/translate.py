"""Models of text translation (section 2.6 of the document)."""

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from speechframe.spec.chosen import MAX_TEXTS_PER_CALL, MAX_TRANSLATE_CHARACTERS
from speechframe.spec.fields._model import CamelModel, Name, SnakeModel, Text, refuse


def _refuse_blank_texts(texts: list[str]) -> list[str]:
    blank = [str(position) for position, text in enumerate(texts) if not text or text.isspace()]
    if blank:
        shown = ", ".join(blank[:_MAX_SHOWN_POSITIONS]) + (", …" if len(blank) > _MAX_SHOWN_POSITIONS else "")
        refuse(f"has empty texts (places {shown}, counted from 0)", "texts with more than whitespace")
    return texts


def _refuse_long_texts(texts: list[str]) -> list[str]:
    characters = sum(map(len, texts))
    if characters > MAX_TRANSLATE_CHARACTERS:
        refuse(
            f"is too long ({characters:,} characters)",
            f"at most {MAX_TRANSLATE_CHARACTERS:,} characters together",
        )
    return texts


_MAX_SHOWN_POSITIONS = 10
"""Largest number of positions of empty texts in a message."""


class TranslateRequest(CamelModel):
    """A request to translate texts into one language (section 2.6)."""

    section: ClassVar[str] = "2.6"

    target_language: Annotated[Name, Field(min_length=1)] = Field(
        description="Code of the language to translate into."
    )
    texts: Annotated[
        list[Text],
        Field(min_length=1, max_length=MAX_TEXTS_PER_CALL),
        AfterValidator(_refuse_blank_texts),
        AfterValidator(_refuse_long_texts),
    ] = Field(description="Texts to translate.")
    source_language: Annotated[Name, Field(min_length=1)] | None = Field(
        None,
        description="Language code of the texts. If absent, the service detects the language of each text.",
        json_schema_extra={"addition": True, "chosen_point": "source-language"},
    )


class Translation(SnakeModel):
    """One text and its translation (section 2.6)."""

    section: ClassVar[str] = "2.6"

    source_text: str | None = None
    translated_text: str | None = None


class CharacterCount(SnakeModel):
    """Total lengths of the source texts and of the translations, in characters (section 2.6)."""

    section: ClassVar[str] = "2.6"

    total_source_text_length: int | None = None
    total_translated_text_length: int | None = None


class TranslateMetadata(SnakeModel):
    """Language, credits and lengths of a translation call (section 2.6)."""

    section: ClassVar[str] = "2.6"

    target_language: str | None = None
    credits_used: float | None = None
    character_count: CharacterCount | None = None


class TranslateResponse(SnakeModel):
    """The answer to a translation call, in the order of the request's texts (section 2.6)."""

    section: ClassVar[str] = "2.6"

    translations: list[Translation] = Field(default_factory=list)
    metadata: TranslateMetadata | None = None
