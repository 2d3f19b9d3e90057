"""Two small runs that exports have in common, made by the embedded service."""

import pandas as pd
import pytest

import speechframe as spf


@pytest.fixture(scope="session")
def corpus(service, tmp_path_factory):
    """A run of twelve English rows with odd ids and a rejected row, and a run of four German rows with other columns."""
    folder = tmp_path_factory.mktemp("corpus")
    english = pd.DataFrame(
        {
            "id": [f"en/{number}" for number in range(10)] + ["emoji 🙂", "pipe"],
            "text": [f"Line number {number} goes [pause 0.5s] on." for number in range(10)]
            + ["One smile.", "Left | right."],
            "speaker": [f"s{number % 4}" for number in range(12)],
            "voice": ["en-US-nora", "en-US-miles"] * 6,
            "mood": ["calm", None, "glad"] * 4,
        }
    )
    german = pd.DataFrame(
        {
            "id": list("abcd"),
            "text": ["Guten Tag.", "Guten Tag.", "Auf Wiedersehen.", "Bis morgen."],
            "score": range(4),
            "locale": "de-DE",
        }
    )
    options = {"service": service, "progress": False, "id": "id"}
    english_run = spf.generate(english, voice=spf.col("voice"), run_dir=folder / "en", **options)
    english_run.review("en/9", "reject", comment="The name is wrong. " * 9)
    german_run = spf.generate(german, voice="de-DE-greta", format="WAV", run_dir=folder / "de", **options)
    return english_run, german_run
