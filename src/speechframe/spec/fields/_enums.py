"""The closed vocabularies of sections 2 and 9 (exported by the chapter modules that use them)."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """Audio formats (section 2.1). The voice changer returns the first five only (section 2.5)."""

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
    """The only value of `modelVersion` (section 2.1)."""

    GEN2 = "GEN2"


class Model(StrEnum):
    """The two speech model generations (section 9).

    The spellings that the document's error page and public clients use are understood too.

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
    """How a voice is made (our addition; chosen: voice-facts)."""

    NEURAL = "neural"
    FORMANT = "formant"


class Gender(StrEnum):
    """Gender of a voice (section 2.4)."""

    MALE = "Male"
    FEMALE = "Female"
    NON_BINARY = "NonBinary"
