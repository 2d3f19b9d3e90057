"""Read and check the text of a dub, from a script or after corrections.

The length of the text is limited by the length of the medium (the media file). The price of a dub depends on
the length of the medium alone, so longer text would be spoken for free.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from speechframe.local.dubbing.lines import is_speakable
from speechframe.local.dubbing.speech import find_speech
from speechframe.spec import chosen
from speechframe.spec.dubbing import DubbedUtterance, UtteranceCorrection
from speechframe.wire import subtitles
from speechframe.wire.cues import Cue
from speechframe.writing.words import format_count


class Script(NamedTuple):
    """The speech of a script as cues, and warnings about guesses and omissions."""

    cues: list[Cue]
    warnings: list[str]


def compute_max_characters(media_s: float) -> int:
    """Return the largest number of characters that the dub of a medium may have.

    Examples
    --------
    >>> compute_max_characters(0.5), compute_max_characters(60.0)
    (200, 2400)
    """
    return int(chosen.MAX_DUB_CHARACTERS_PER_SECOND * max(media_s, chosen.MIN_DUB_TEXT_SECONDS))


def read_script(script: str, media_s: float, *, cast: Collection[str] = (), slack_s: float = 0.0) -> Script:
    """Return the cues of a script that begin within the medium. Cues that end later are shortened.

    Parameters
    ----------
    script
        SRT or WebVTT.
    media_s, slack_s
        Length of the medium in seconds, and the seconds that the limits of text add to this length.
    cast
        Names that are certainly speakers.

    Raises
    ------
    ValueError
        The script is neither SRT nor WebVTT, or has too much text or too many overlapping cues for the
        medium.
    """
    media_ms = round(1000 * media_s)
    spoken_cues, warnings = find_speech(subtitles.read_subtitles(script), cast)
    spoken_cues = [cue for cue in spoken_cues if is_speakable(cue.text)]
    found = [replace(cue, end_ms=min(cue.end_ms, media_ms)) for cue in spoken_cues if cue.start_ms < media_ms]
    late = [cue for cue in spoken_cues if cue.start_ms >= media_ms]
    if late:
        warnings.append(
            f"{format_count(len(late), 'cue')} not spoken, because the medium ends at {media_s:,.1f} s; the "
            f"first of them begins at {late[0].start_ms / 1000:,.1f} s"
        )
    silent = sorted({*cast} - {cue.speaker for cue in spoken_cues})
    if silent:
        warnings.append(f"the script has no speaker {', '.join(map(repr, silent))}, who is in cast")
    _check_characters([cue.text for cue in found], compute_max_characters(media_s + slack_s), media_s)
    least_s = max(media_s + slack_s, chosen.MIN_DUB_TEXT_SECONDS)
    together_s = sum(cue.end_ms - cue.start_ms for cue in found) / 1000
    if together_s > chosen.MAX_DUB_VOICES_AT_ONCE * least_s:
        raise ValueError(
            f"its cues overlap too much: together they last {together_s:,.0f} seconds; allowed: at most "
            f"{chosen.MAX_DUB_VOICES_AT_ONCE} times the {least_s:,.1f} seconds of the medium"
        )
    return Script(found, warnings)


def apply_corrections(
    utterances: Sequence[DubbedUtterance],
    corrections: Iterable[UtteranceCorrection],
    media_s: float,
    *,
    slack_s: float = 0.0,
) -> list[tuple[str, str]]:
    """Return the text and the voice id of each utterance after the corrections, in order.

    Raises
    ------
    ValueError
        The corrected text is too long for the medium and longer than before, or a single text is too long.
    """
    wanted = {each.utterance_id: (each.text, each.voice_id) for each in utterances}
    # Apply corrections in order, because one may change the text of an utterance, and another its voice.
    for one in corrections:
        text, voice_id = wanted[one.utterance_id]
        wanted[one.utterance_id] = (one.text or text, one.voice_id or voice_id)
    before = sum(len(each.text) for each in utterances)
    most = max(before, compute_max_characters(media_s + slack_s))
    _check_characters([text for text, _ in wanted.values()], most, media_s)
    return [*wanted.values()]


def _check_characters(texts: Sequence[str], most: int, media_s: float) -> None:
    longest, count = max(map(len, texts), default=0), sum(map(len, texts))
    if longest > chosen.MAX_TEXT_CHARACTERS:
        raise ValueError(
            f"one of its texts is too long (got {longest:,} characters); allowed: at most "
            f"{chosen.MAX_TEXT_CHARACTERS:,}; divide it into several"
        )
    if count > most:
        raise ValueError(
            f"the text is too long for a medium of {media_s:,.1f} seconds (got {count:,} characters); "
            f"allowed: at most {most:,} ({chosen.MAX_DUB_CHARACTERS_PER_SECOND} for each second, of which "
            f"{chosen.MIN_DUB_TEXT_SECONDS} always count); shorten the text"
        )
