"""Play a stream of speech while it arrives, and afterwards as a clip."""

import logging
import threading
import time
from concurrent.futures import CancelledError, wait
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import traitlets as t

from speechframe.audio.clip import Clip
from speechframe.audio.codec import encode
from speechframe.audio.peaks import compute_peaks
from speechframe.client import Stream, SyncStream
from speechframe.errors import AudioError, SpeechframeError, StoreError
from speechframe.page.clips import ClipShelf, Entry
from speechframe.page.word_times import estimate_word_times
from speechframe.spec.speech import ChannelType, Format
from speechframe.widgets.base import ClipWidget
from speechframe.writing.notebook import format_table

log = logging.getLogger(__name__)

_MIN_PAUSE_S = 0.05
"""Shortest time in seconds between two reads of the stream."""

_MIN_UPDATE_S = 0.25
"""Shortest time in seconds between two updates of text and waveform."""

_READING_DIVISOR = 5
"""Reads take at most one fifth of the time, because each read decodes the whole audio so far."""

_UNSETTLED_FRAMES = {Format.MP3: 2400, Format.OGG: 4096}
"""Frames at the end of the received audio that may still change when more arrives, by lossy format."""

_FULL_SCALE = 32767
"""Largest sample of 16 bits."""

_CLIP_ID = "0"
"""Id of the only clip on the page."""


class StreamPlayer(ClipWidget):
    """A player of a stream. It plays the stream while it arrives, and afterwards as a clip.

    :func:`play` makes this widget for a stream. The widget reads the stream to its end, even if no page plays
    it. Playing starts by itself if the browser allows this. Otherwise press the button or the space bar. The
    service does not return word times for streams. So the times of the highlighted words are estimated from
    the lengths of the words, and the page shows a note on this.

    Parameters
    ----------
    stream
        The stream. Nothing else may read from this stream.

    Attributes
    ----------
    stream
        The stream, with ``summary``, ``audio``, ``save`` and so on.
    arrived_seconds
        Length in seconds of the audio that has arrived.
    trouble
        Reason why the stream broke off. Empty if it did not.
    """

    script = "stream_player"

    clip = t.Dict().tag(sync=True)
    outline = t.Bytes().tag(sync=True)
    over = t.Bool(default_value=False).tag(sync=True)
    fresh = t.Bool(default_value=True).tag(sync=True)
    trouble = t.Unicode().tag(sync=True)

    def __init__(self, stream: Stream | SyncStream) -> None:
        self.stream = stream
        self.arrived_seconds = 0.0
        self._sending = threading.Lock()
        self._samples: npt.NDArray[np.int16] = np.zeros((0, stream.channels), np.int16)
        self._rate_hz = stream.sample_rate_hz
        self._bytes_seen = 0
        self._is_followed = self._closed = False
        super().__init__(ClipShelf([self._make_entry()]), clip=self._make_entry().to_page())
        self._reading = stream.start_reading()
        self._follower = threading.Thread(
            target=self._follow_stream, name="speechframe-stream-player", daemon=True
        )
        self._follower.start()

    # -- while the stream arrives, in a separate thread -----------------------------------

    def _follow_stream(self) -> None:
        """Update the page until the stream has ended or the player is closed."""
        pause_s, shown_s, is_over = _MIN_PAUSE_S, 0.0, False
        while not is_over:
            is_over = bool(wait([self._reading], timeout=pause_s).done)
            if self._closed:
                return
            began_s = time.monotonic()
            self._send_new_audio(last=is_over)
            if is_over:
                self._finish_clip()
            elif began_s - shown_s >= _MIN_UPDATE_S:
                self._update_page()
                shown_s = began_s
            pause_s = max(_MIN_PAUSE_S, (_READING_DIVISOR - 1) * (time.monotonic() - began_s))

    def _send_new_audio(self, *, last: bool) -> None:
        """Send the audio that arrived since the last call to pages that follow the stream."""
        if (size := len(self.stream.audio)) == self._bytes_seen and not last:
            return
        try:
            samples = self.stream.samples()
        except AudioError:
            return  # too little audio for the decoder
        self._bytes_seen = size
        settled_frames = len(samples) - (0 if last else _UNSETTLED_FRAMES.get(self.stream.format, 0))
        with self._sending:
            sent_frames = len(self._samples)
            new_samples = (samples[:, None] if samples.ndim == 1 else samples)[
                sent_frames : max(settled_frames, sent_frames)
            ]
            if not len(new_samples):
                return
            if not sent_frames:
                self._rate_hz = self.stream.summary.sample_rate_hz
            pcm = (new_samples * _FULL_SCALE).round().astype("<i2")
            self._samples = np.concatenate([self._samples, pcm]) if sent_frames else pcm
            self.arrived_seconds = len(self._samples) / self._rate_hz
            if self._is_followed:
                self._send_from(sent_frames)

    def _send_from(self, at: int) -> None:
        """Send all samples from frame `at` on."""
        data = self._samples[at:]
        message = {"kind": "piece", "at": at, "rate_hz": self._rate_hz, "channels": data.shape[1]}
        self.send(message, buffers=[data.tobytes()])

    def on_follow(self, message: dict[str, Any]) -> None:
        """Send the audio so far to a page. From now on, new audio is sent as it arrives."""
        del message
        with self._sending:
            self._is_followed = True
            if len(self._samples):
                self._send_from(0)

    def _make_entry(self, *, over: bool = False) -> Entry:
        """Return the data of the clip so far, with estimated times of words."""
        text, seconds = self.stream.text, self.arrived_seconds
        words = estimate_word_times(text, seconds if over else None)
        if not over and words and words[-1][2] < seconds * 1000:
            words = estimate_word_times(text, seconds)  # the audio is longer than the usual estimate
        return Entry(_CLIP_ID, "stream", "stream", text, words, seconds, load=_refuse_early)

    def _update_page(self) -> None:
        """Update text, times of words and waveform on the page."""
        with self.hold_sync():
            self.clip = self._make_entry().to_page()
            self.outline = (
                compute_peaks(self._samples / np.float32(_FULL_SCALE)) if len(self._samples) else b""
            )

    def _finish_clip(self) -> None:
        """Make a clip of the audio that arrived, even if the stream broke off."""
        try:
            self._reading.result()
        except CancelledError:
            trouble = "the stream was closed before its end"
        except (SpeechframeError, OSError) as error:
            trouble = str(error)
        except Exception as error:
            # The caller's iterator of texts raised this error. The page shows it, and the log has the trace.
            log.exception("a stream ended before its end")
            trouble = str(error) or type(error).__name__
        else:
            trouble = ""
        entry = self._make_entry(over=True)
        if len(self._samples):
            clip = self._make_clip()
            entry = replace(entry, load=lambda: clip)
        else:
            entry = Entry(_CLIP_ID, "stream", "stream", entry.text, problem=trouble or "the stream was empty")
        self.shelf = ClipShelf([entry])
        with self.hold_sync():
            self.clip = entry.to_page()
            self.outline = self.shelf.compute_peaks(_CLIP_ID)
            self.trouble, self.over = trouble, True

    def _make_clip(self) -> Clip:
        channels = self._samples.shape[1]
        audio = encode(
            self._samples / np.float32(_FULL_SCALE),
            self._rate_hz,
            format=Format.WAV,
            channel_type=ChannelType.MONO if channels == 1 else ChannelType.STEREO,
        )
        return Clip(audio, Format.WAV, self._rate_hz, channels, self.stream.text)

    # -- the end, and the view as text and plain HTML ------------------------------------

    def wait(self) -> "StreamPlayer":
        """Wait for the end of the stream, and return the player."""
        self._follower.join()
        return self

    def close(self) -> None:
        """Close the player. A stream that has not ended is stopped."""
        self._closed = True
        self._reading.cancel()
        super().close()

    def to_html(self, path: str | PathLike[str] | None = None, *, title: str = "A stream") -> str | Path:
        """Return the clip as one page that contains its audio, or write the page and return `path`.

        Raises
        ------
        StoreError
            The stream is still arriving. Call :meth:`wait` first.
        """
        if not self.over:
            raise StoreError("the stream is still arriving; call player.wait().to_html(...)")
        state = {name: getattr(self, name) for name in ("clip", "outline", "trouble", "over")}
        return self.save_as_page(path, title, **state, fresh=False)

    def to_text(self) -> str:
        """Return the state of the stream and the length of its audio as text."""
        state = "arriving" if not self.over else "broken off" if self.trouble else "complete"
        return f"<StreamPlayer: {state}, {self.arrived_seconds:,.1f} s>"

    def to_table(self) -> str:
        """Return text, length and problem of the stream as a table."""
        row = [self.stream.text, f"{self.arrived_seconds:.2f} s", self.trouble]
        return format_table(["text", "length", "problem"], [row], caption=self.to_text())


def _refuse_early() -> Clip:
    """Raise StoreError, because there is no clip yet."""
    raise StoreError("the stream is still arriving; wait for its end")
