"""Conversion of bytes to values and back, without any input or output.

- `requests`: JSON and forms. Equal requests give equal bytes.
- `answers`: the parts that good answers share
- `speech`, `changer`, `translate`, `dubbing`: bodies of these chapters of the document
- `errors`: error answers
- `encoding`: compressed bodies, unpacked up to a limit
- `frames`: WebSocket messages of both sides
- `chunking`: text that arrives in pieces, cut into sentences and clauses
- `contexts`, `turns`: the service's side of WebSocket contexts
- `client_contexts`: the client's side of WebSocket contexts
"""
