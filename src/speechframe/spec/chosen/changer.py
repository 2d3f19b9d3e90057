"""Choices for media files that are sent to the voice changer and for dubbing."""

from speechframe.spec.chosen._point import OpenPoint

TRANSCRIPTION_CHARACTERS_PER_S = 60
"""Largest number of characters of a transcription for each second of its clip.

A transcription of a short clip may still have `MAX_TEXT_CHARACTERS`.
"""
MAX_UPLOAD_BYTES = 500 * 1024 * 1024
"""Largest size of an uploaded media file."""
MAX_REDIRECTS = 5
"""Largest number of redirects of a `file_url`."""


CHANGER_POINTS: tuple[OpenPoint, ...] = (
    OpenPoint(
        "upload-size",
        "Upload size",
        f"{MAX_UPLOAD_BYTES // 1024**2} MB. A larger upload is refused while it arrives, not after its end.",
        "A media file of some hours fits. An early refusal saves the rest of the upload.",
        "guess",
    ),
    OpenPoint(
        "one-source",
        "Both or neither of file and file_url",
        "400 with a message that names both fields.",
        "A guess could dub and bill the wrong media file.",
    ),
    OpenPoint(
        "file-url",
        "Addresses that a file_url may have",
        "http and https addresses on the public Internet, without credentials. The service does not send "
        f"its key. It follows at most {MAX_REDIRECTS} redirects. A failure gets 400 with its cause. The "
        "operator of a local service may allow private addresses.",
        "A caller must not reach the private network of the service through a file_url.",
    ),
    OpenPoint(
        "empty-form-field",
        "A form field that is empty",
        "Counts as an absent field.",
        "HTML forms also send the fields that the user left empty.",
    ),
)
