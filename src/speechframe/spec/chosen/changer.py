"""Clips that are handed in, to the voice changer and for dubbing."""

from speechframe.spec.chosen._point import OpenPoint

TRANSCRIPTION_CHARACTERS_PER_S = 60
"""Characters a transcription may have for each second of its clip, and never fewer than a text may."""
MAX_UPLOAD_BYTES = 500 * 1024 * 1024
"""Size of an uploaded medium."""
MAX_REDIRECTS = 5
"""How often a `file_url` may lead elsewhere."""


POINTS: tuple[OpenPoint, ...] = (
    OpenPoint(
        "upload-size",
        "Upload size",
        f"{MAX_UPLOAD_BYTES // 1024**2} MB, refused while reading, not after.",
        "A medium of some hours fits; nobody uploads in vain.",
        "guess",
    ),
    OpenPoint(
        "one-source",
        "Both or neither of file and file_url",
        "400 naming both.",
        "Guessing which one was meant could dub, and bill, the wrong medium.",
        "ours",
    ),
    OpenPoint(
        "file-url",
        "Where a file_url may lead",
        "http and https on the public Internet, without credentials in the address and without our key; at "
        f"most {MAX_REDIRECTS} redirects; 400 by the kind of failure. The operator of a local service may "
        "allow private addresses.",
        "A service must not reach, for a stranger, what only its own machine and network may.",
        "ours",
    ),
    OpenPoint(
        "empty-form-field",
        "A form field that is empty",
        "Counts as not given.",
        "Forms send every field they have, filled in or not.",
        "ours",
    ),
)
