"""Bytes to values and back, without any input or output.

- `bodies`: JSON bodies of requests and answers
- `errors`: what an error answer and its headers say
- `encoding`: compressed bodies, unpacked within a bound
"""
