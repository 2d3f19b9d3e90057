"""Conversion of requests, answers and WebSocket messages to bytes and back, without network or files.

- `requests`: JSON and forms. Equal requests give equal bytes.
- `answers`: functions for all successful answers, such as JSON, Base64 and warnings
- `speech`, `changer`, `translate`, `dubbing`: bodies of the requests and answers of these calls
- `errors`: error answers
- `encoding`: decompression of bodies up to a limit
- `cues`, `subtitles`: writing and reading of SRT and WebVTT
- `frames`: WebSocket messages of both sides
- `chunking`: cutting of text that arrives in pieces into sentences and clauses
- `contexts`, `turns`: rules of WebSocket contexts on the service's side
- `client_contexts`: rules of WebSocket contexts on the client's side
"""
