"""Audio as numbers: formats (`codec`), what is heard (`measure`), exact lengths (`stretch`).

Everywhere in this room, and in whatever uses it, samples are float32 in [-1, 1]
with the shape ``(frames,)`` for mono or ``(frames, channels)``. Nothing here
opens files or sockets: bytes and arrays in, bytes and arrays out. What cannot
be done raises :class:`speechframe.errors.AudioError`.
"""
