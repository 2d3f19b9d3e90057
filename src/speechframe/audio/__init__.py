"""Audio in memory: formats (`codec`), measurements (`measure`) and exact lengths (`stretch`).

Samples are float32 in [-1, 1] with the shape ``(frames,)`` for mono, or ``(frames, channels)``. Most modules
take and return bytes and arrays and open no files. `media`, `lengths` and `saving` also take paths. Audio
that cannot be used raises :class:`speechframe.errors.AudioError`.
"""
