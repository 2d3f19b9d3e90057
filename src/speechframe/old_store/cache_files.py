# ruff: noqa: PTH108, PTH116, PTH123, PTH208
# A path object for every file costs a hit a tenth of its time, and a listing half of it.
"""The files of a cache folder: what they are called, what is in them, which of them may go.

Layout 1::

    cache.json              the layout; written first
    entries/ab/<key>        a call by its request_key: the sha256 of what follows, a line break, JSON
    audio/ab/<sha256>       an answer's audio, once, however many entries name it; a translation has none
    lock                    held while somebody prunes

A file has its name only when it is whole, and whoever reads it checks its
sha256: any number of processes may share a folder, be killed at any instant,
or lose the disk's last writes. What is damaged is a miss. An entry's time of
change says when it was last used.
"""

import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speechframe.errors import StoreError
from speechframe.old_store.arrow import from_microseconds, microseconds, repaired
from speechframe.old_store.schema import CallStatus, Record

LAYOUT = 1
"""The layout of cache folders this version writes, and the newest it reads."""

MARKER, LOCK = "cache.json", "lock"
ENTRIES, AUDIO = "entries", "audio"
KEY = re.compile(r"[0-9a-f]{32}")
"""What a request_key looks like: nothing else becomes the name of a file."""

DAY_S = 86_400.0

_SHARD_DIGITS = 2
_DIGEST_DIGITS = 64
_DIGEST = re.compile(rf"[0-9a-f]{{{_DIGEST_DIGITS}}}")
_END = re.compile(rb'"sha256": "([0-9a-f]{64}|)", "made_at": -?\d+}$')
_END_BYTES = 160
"""An entry ends with the sha256 of its audio: so much of it has that, however many words stand before."""

# What an answer is. What the call was (its price, lane, latency, text) is not kept.
_KEPT = (
    "word_durations", "format", "sample_rate", "channels", "audio_seconds", "trace_id", "service", "model",
    "voice_id", "locale", "warnings", "take", "translated_text", "route", "length_ratio", "placeholders_ok",
    "glossary_ok", "transcription",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """A call in the cache. Never its text.

    Parameters
    ----------
    key
        The call's request_key.
    bytes
        Of its files; audio that several entries name counts for each.
    last_used
        UTC; exact to an hour.
    made_at
        UTC; when the call was made.
    voice_id, locale, model, format, service
        Of the call.
    audio_seconds
        Length of the audio.
    """

    key: str
    bytes: int
    last_used: datetime
    made_at: datetime
    voice_id: str | None
    locale: str | None
    model: str | None
    format: str | None
    audio_seconds: float | None
    service: str | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed from a cache, and what is left.

    Parameters
    ----------
    entries
        Calls removed.
    bytes_freed
        Of all files removed: entries, their audio, leftovers of processes that were killed.
    entries_left, bytes_left
        What is still there.
    """

    entries: int
    bytes_freed: int
    entries_left: int
    bytes_left: int


@dataclass(slots=True)
class File:
    """A file as it was listed."""

    name: str
    path: str
    size: int
    changed_s: float

    def remove(self) -> bool:
        """Remove the file unless somebody used it since it was listed; return whether it is gone."""
        try:
            if os.stat(self.path).st_mtime != self.changed_s:
                return False
            os.unlink(self.path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def entry_path(root: str, request_key: str) -> str:
    """Return where the entry of a call lies."""
    return f"{root}/{ENTRIES}/{request_key[:_SHARD_DIGITS]}/{request_key}"


def audio_path(root: str, digest: str) -> str:
    """Return where audio with this sha256 lies."""
    return f"{root}/{AUDIO}/{digest[:_SHARD_DIGITS]}/{digest}"


@contextmanager
def using(folder: Path) -> Iterator[None]:
    """Turn an OSError of the block into a StoreError that names the cache."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the cache {folder} cannot be used ({error.strerror or error}): make the folder readable and "
            "writable, or name another as cache"
        ) from error


def check_layout(folder: Path) -> None:
    """Raise StoreError unless `folder` is a cache of this layout, empty, or not there."""
    with using(folder):
        try:
            content = json.loads((folder / MARKER).read_bytes())
            layout = int(content["layout"])
        except FileNotFoundError:
            if all(item.name.startswith(".") for item in scan(str(folder))):
                return
            if (folder / MARKER).exists():
                # Somebody made the cache since the first line.
                check_layout(folder)
                return
            raise StoreError(
                f"{folder} holds other files and no cache: name an empty or a new folder as cache"
            ) from None
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise StoreError(
                f"{folder / MARKER} is damaged ({error}): remove the folder, or name another as cache"
            ) from None
    if layout > LAYOUT:
        writer = content.get("speechframe_version") or "a newer version"
        raise StoreError(
            f"{folder} is a cache of layout {layout} (speechframe {writer}); this version reads layouts up "
            f"to {LAYOUT}: upgrade speechframe, or name another folder as cache"
        )


def packed(record: Record, digest: str) -> bytes:
    """Return the entry of `record`, whose audio has the sha256 `digest`, empty where it has none."""
    try:
        said = _said(record, digest)
    except (TypeError, ValueError, AttributeError):
        said = _said(repaired(record), digest)
    return hashlib.sha256(said).hexdigest().encode() + b"\n" + said


def _said(record: Record, digest: str) -> bytes:
    kept: dict[str, Any] = {name: getattr(record, name) for name in _KEPT}
    return json.dumps({**kept, "sha256": digest, "made_at": microseconds(record.finished_at)}).encode()


def unpacked(content: bytes) -> dict[str, Any] | None:
    """Return what an entry says, None when it is damaged."""
    said = content[_DIGEST_DIGITS + 1 :]
    if hashlib.sha256(said).hexdigest().encode() != content[:_DIGEST_DIGITS]:
        return None
    try:
        kept = json.loads(said)
    except ValueError:
        return None
    return kept if _is_entry(kept) else None


def _is_entry(kept: Any) -> bool:
    """Whether JSON has what every entry has; the sha256 becomes a file name, so it must be one."""
    if not isinstance(kept, dict) or not isinstance(kept.get("made_at"), int):
        return False
    digest = kept.get("sha256")
    if digest == "":
        return isinstance(kept.get("translated_text"), str)
    return isinstance(digest, str) and _DIGEST.fullmatch(digest) is not None


def read_entry(path: str) -> dict[str, Any] | None:
    """Return what the entry in a file says, None when it is damaged or gone."""
    try:
        with open(path, "rb", buffering=0) as file:
            return unpacked(file.read())
    except OSError:
        return None


def read_digest(file: File) -> str | None:
    """Return the sha256 of an entry's audio, empty for one without; None when it is damaged.

    Only its end is read, where that is as :func:`_said` writes it.
    """
    try:
        with open(file.path, "rb", buffering=0) as entry:
            found = _END.search(os.pread(entry.fileno(), _END_BYTES, max(0, file.size - _END_BYTES)))
    except OSError:
        return None
    return _checked_digest(file) if found is None else found[1].decode()


def _checked_digest(file: File) -> str | None:
    kept = read_entry(file.path)
    return None if kept is None else str(kept["sha256"])


def entry_of(root: str, file: File) -> Entry | None:
    """Return the entry in a file, None when it is damaged or its audio is gone."""
    kept = read_entry(file.path)
    try:
        has_audio = kept is not None and kept["sha256"]
        audio_bytes = (
            0 if kept is None or not has_audio else os.stat(audio_path(root, kept["sha256"])).st_size
        )
    except OSError:
        kept = None
    if kept is None:
        return None
    return Entry(
        key=file.name,
        bytes=file.size + audio_bytes,
        last_used=datetime.fromtimestamp(file.changed_s, UTC),
        made_at=from_microseconds(kept["made_at"]),
        voice_id=kept.get("voice_id"),
        locale=kept.get("locale"),
        model=kept.get("model"),
        format=kept.get("format"),
        audio_seconds=kept.get("audio_seconds"),
        service=kept.get("service"),
    )


def record_of(request_key: str, kept: dict[str, Any], audio: bytes | None) -> Record:
    """Return the record of a hit."""
    fields = {name: kept[name] for name in _KEPT if name in kept}
    words = fields.get("word_durations", ())
    fields["word_durations"] = None if words is None else [tuple(word) for word in words]
    return Record(
        request_key,
        CallStatus.CACHED.value,
        audio_bytes=audio,
        sha256=kept["sha256"] or None,
        billed_characters=0,
        credits_millis=0,
        attempts=0,
        **fields,
    )


def touch(path: str, size: int) -> bool:
    """Whether the file is there; marked as new, so that nobody takes it for a leftover."""
    try:
        if os.stat(path).st_size != size:
            return False
    except FileNotFoundError:
        return False
    # Somebody else's file may refuse: it is there all the same.
    with suppress(OSError):
        os.utime(path)
    return True


def unlink(path: str) -> None:
    """Remove a file if that can be done."""
    with suppress(OSError):
        os.unlink(path)


def scan(folder: str) -> "list[os.DirEntry[str]]":
    """Return what lies in a folder; nothing for one that is not there."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def listed(root: str, room: str) -> Iterator[File]:
    """Yield every file of the entries, or of the audio."""
    for shard in scan(f"{root}/{room}"):
        for item in scan(shard.path):
            with suppress(OSError):
                said = item.stat(follow_symlinks=False)
                yield File(item.name, item.path, said.st_size, said.st_mtime)


def key_names(root: str) -> Iterator[str]:
    """Yield the request_key of every entry, reading names only."""
    for shard in scan(f"{root}/{ENTRIES}"):
        with suppress(OSError):
            yield from filter(KEY.fullmatch, os.listdir(shard.path))


def prune(
    root: str, most_bytes: float | None, oldest_days: float | None, *, dry_run: bool, is_quick: bool = False
) -> Pruned:
    """Remove entries until the limits hold, the least recently used first; None for no limit.

    Every entry is read and checked, but in a hurry: then only its end, and what is damaged elsewhere stays
    until somebody asks for it.
    """
    now_s = time.time()
    # Entries first: the audio of an entry that is seen here was there before it.
    entries: list[File] = []
    leftovers: list[File] = []
    for file in listed(root, ENTRIES):
        (entries if KEY.fullmatch(file.name) else leftovers).append(file)
    audio = {file.name: file for file in listed(root, AUDIO)}
    read = read_digest if is_quick else _checked_digest
    said = {file.name: read(file) for file in entries}
    digests = {name: kept for name, kept in said.items() if kept is not None and (not kept or kept in audio)}
    uses = Counter(filter(None, digests.values()))
    left = before = sum(file.size for file in (*entries, *leftovers, *audio.values()))
    # Audio that no entry names may be that of a put under way.
    leftovers += [file for name, file in audio.items() if name not in uses]
    for file in leftovers:
        if now_s - file.changed_s > DAY_S and (dry_run or file.remove()):
            left -= file.size
    removed = 0
    for entry in sorted(entries, key=lambda file: file.changed_s):
        digest = digests.get(entry.name)
        is_old = oldest_days is not None and now_s - entry.changed_s > oldest_days * DAY_S
        is_too_much = most_bytes is not None and left > most_bytes
        if digest is not None and not is_old and not is_too_much:
            continue
        if not (dry_run or entry.remove()):
            continue
        removed += 1
        left -= entry.size
        if not digest:
            continue
        uses[digest] -= 1
        if not uses[digest] and (dry_run or audio[digest].remove()):
            left -= audio[digest].size
    return Pruned(removed, before - left, len(entries) - removed, left)
