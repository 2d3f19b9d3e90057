"""Bytes to values and back, without any input or output.

- `bodies`: JSON bodies of requests and answers; `answers`: what the answers of several chapters share
- `errors`: what an error answer and its headers say
- `encoding`: compressed bodies, unpacked within a bound
- `frames`: WebSocket messages of both ends
- `chunking`: text in pieces, cut into sentences and clauses
- `contexts`, `turns`: the service's side of WebSocket contexts
- `client_contexts`: the client's side of them
"""
