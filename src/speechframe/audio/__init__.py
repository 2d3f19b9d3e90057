"""Decoding, encoding and measurement of audio.

`codec` and `streams` encode, `codec` and `media` decode, `measure` and `levels` measure, `lengths` returns
the length of a file, and `stretch` changes it.

Samples are float32 in [-1, 1] with the shape ``(frames,)`` for mono, or ``(frames, channels)``. Most modules
have bytes and arrays as arguments and results, and open no files. `media`, `lengths` and `saving` also take
paths. Audio that cannot be used raises :class:`speechframe.errors.AudioError`.
"""
