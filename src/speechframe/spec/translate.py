"""Text translation (section 2.6 of the document)."""

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from speechframe.spec._model import CamelModel, PlainText, SnakeModel, Text, refuse
from speechframe.spec.chosen import MAX_TEXTS_PER_CALL, MAX_TRANSLATE_CHARACTERS

__all__ = ["CharacterCount", "TranslateMetadata", "TranslateRequest", "TranslateResponse", "Translation"]


def _not_too_long(texts: list[str]) -> list[str]:
    characters = sum(map(len, texts))
    if characters > MAX_TRANSLATE_CHARACTERS:
        refuse(
            f"is too long ({characters:,} characters)",
            f"at most {MAX_TRANSLATE_CHARACTERS:,} characters together",
        )
    return texts


class TranslateRequest(CamelModel):
    """Texts and the language they are wanted in (section 2.6)."""

    section: ClassVar[str] = "2.6"

    target_language: Annotated[str, Field(min_length=1, strict=True), PlainText] = Field(
        description="Language code."
    )
    texts: Annotated[
        list[Text], Field(min_length=1, max_length=MAX_TEXTS_PER_CALL), AfterValidator(_not_too_long)
    ] = Field(description="Texts to translate.")


class Translation(SnakeModel):
    """One text and its translation (section 2.6)."""

    section: ClassVar[str] = "2.6"

    source_text: str | None = None
    translated_text: str | None = None


class CharacterCount(SnakeModel):
    """How long sources and translations are, in characters (section 2.6)."""

    section: ClassVar[str] = "2.6"

    total_source_text_length: int | None = None
    total_translated_text_length: int | None = None


class TranslateMetadata(SnakeModel):
    """What a translation call used (section 2.6)."""

    section: ClassVar[str] = "2.6"

    target_language: str | None = None
    credits_used: float | None = None
    character_count: CharacterCount | None = None


class TranslateResponse(SnakeModel):
    """The answer to a translation call, texts in the order asked (section 2.6)."""

    section: ClassVar[str] = "2.6"

    translations: list[Translation] = Field(default_factory=list)
    metadata: TranslateMetadata | None = None
