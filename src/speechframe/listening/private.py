"""Write files that only their owner can read, because they contain conditions and votes of a blind test."""

from pathlib import Path

from speechframe.store.folder import sync_to_disk


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner can read. An existing folder keeps its mode."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Make an empty file that only its owner can read. Replace an existing file."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)


def write_private(final: Path, content: bytes) -> None:
    """Write a file that only its owner can read. Replace it in one step, so readers see no partial file."""
    temporary = final.with_name(f".{final.name}.tmp")
    make_private_file(temporary)
    temporary.write_bytes(content)
    sync_to_disk(temporary)
    temporary.replace(final)
    sync_to_disk(final.parent)
