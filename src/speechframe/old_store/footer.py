"""The keys of a part in its footer: one short read finds all its calls, however far apart they lie.

Other tools do not look there. A part without the note, or with one that does
not fit its rows, is read by its columns.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

NOTE = b"speechframe_keys"

_HEX_DIGITS = 32

Bytes = npt.NDArray[np.uint8]
Noted = tuple[Bytes, Bytes, list[str]]


def note(keys: Sequence[str], statuses: Sequence[str]) -> dict[str, str]:
    """Return what goes into the footer of a part with these rows."""
    names = list(dict.fromkeys(statuses))
    codes = bytes(map({name: code for code, name in enumerate(names)}.__getitem__, statuses))
    said = {
        "keys": base64.b64encode(packed(pa.array(keys, pa.string())).tobytes()).decode(),
        "statuses": names,
        "codes": base64.b64encode(codes).decode(),
    }
    return {NOTE.decode(): json.dumps(said)}


def read_note(metadata: Mapping[bytes, bytes], rows: int) -> Noted | None:
    """Return the packed keys, their statuses' numbers and the names of these; None without such a note."""
    if NOTE not in metadata:
        return None
    with suppress(ValueError, KeyError, TypeError):
        said = json.loads(metadata[NOTE])
        keys = np.frombuffer(base64.b64decode(said["keys"]), np.uint8).reshape(-1, 16)
        codes = np.frombuffer(base64.b64decode(said["codes"]), np.uint8)
        if len(keys) == len(codes) == rows:
            return keys, codes, said["statuses"]
    return None


def packed(keys: "pa.Array[Any]") -> Bytes:
    """Return each key in 16 bytes: 32 hex digits are that, anything else is hashed to it."""
    plain: Any = keys.cast(pa.string()) if keys.type != pa.string() else keys
    if (
        len(plain)
        and not plain.null_count
        and pc.all(pc.equal(pc.binary_length(plain), pa.scalar(_HEX_DIGITS))).as_py()
    ):
        _, offset_bytes, letters = (memoryview(buffer or b"") for buffer in plain.buffers())
        first = np.frombuffer(offset_bytes, np.int32)[plain.offset]
        digits = bytes(letters[first : first + len(plain) * _HEX_DIGITS])
        with suppress(binascii.Error):
            values = binascii.unhexlify(digits)
            if binascii.hexlify(values) == digits:  # no capital letters
                return np.frombuffer(values, np.uint8).reshape(-1, 16)
    return np.frombuffer(b"".join(map(_packed_one, plain.to_pylist())), np.uint8).reshape(-1, 16)


def _packed_one(key: str | None) -> bytes:
    if key is None:
        return bytes(16)
    if len(key) == _HEX_DIGITS and set(key) <= set("0123456789abcdef"):
        return bytes.fromhex(key)
    return hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=16).digest()
