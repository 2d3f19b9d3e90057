"""Bytes to values and back, without any input or output.

- `requests`: JSON and forms, always the same for equal requests
- `answers`: what good answers hold; `speech`, `changer`, `translate`, `dubbing`: those of a chapter
- `errors`: what an error answer says; `encoding`: compressed bodies, unpacked within a bound
- `frames`: WebSocket messages of both ends
- `chunking`: text in pieces, cut into sentences and clauses
- `contexts`, `turns`: the service's side of WebSocket contexts
- `client_contexts`: the client's side of them
"""
