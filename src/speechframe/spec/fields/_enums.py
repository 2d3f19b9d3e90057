"""Enums of the document's models (sections 2 and 9). The modules of the chapters export them."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """Audio formats (section 2.1). The voice changer has only the first five (section 2.5)."""

    MP3 = "MP3"
    WAV = "WAV"
    FLAC = "FLAC"
    ALAW = "ALAW"
    ULAW = "ULAW"
    PCM = "PCM"
    OGG = "OGG"


class ChannelType(StrEnum):
    """Mono or stereo (section 2.1)."""

    MONO = "MONO"
    STEREO = "STEREO"

    def __init__(self, name: str) -> None:
        self.channels = 1 if name == "MONO" else 2
        """The number of channels, 1 or 2."""


class ModelVersion(StrEnum):
    """Values of `modelVersion`, of which there is only one (section 2.1)."""

    GEN2 = "GEN2"


class Model(StrEnum):
    """The two generations of speech models (section 9).

    The spellings FALCON and GEN2 are also accepted, because the error page of the document and public clients
    use them.

    Examples
    --------
    >>> Model("FALCON") is Model.FALCON_2
    True
    """

    FALCON_2 = "falcon-2"
    GEN2 = "gen2"

    @classmethod
    def _missing_(cls, value: object) -> Model | None:
        return {"FALCON": cls.FALCON_2, "GEN2": cls.GEN2}.get(value) if isinstance(value, str) else None


class VoiceKind(StrEnum):
    """Kinds of the engine of a voice (our addition; chosen: voice-facts)."""

    NEURAL = "neural"
    FORMANT = "formant"


class Gender(StrEnum):
    """Gender of a voice (section 2.4)."""

    MALE = "Male"
    FEMALE = "Female"
    NON_BINARY = "NonBinary"
