"""Files that only their owner can read: what a blind test must not show, and who said what."""

from pathlib import Path

from speechframe.store.folder import sync


def private_folder(folder: Path) -> None:
    """Make a folder that only its owner can look into; one that is there keeps its mode."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def private_file(path: Path) -> None:
    """Make an empty file that only its owner can read, whatever the umask is and stood there before."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)


def write_private(final: Path, content: bytes) -> None:
    """Replace a file that only its owner can read; a reader sees the old or the new content."""
    temporary = final.with_name(f".{final.name}.tmp")
    private_file(temporary)
    temporary.write_bytes(content)
    sync(temporary)
    temporary.replace(final)
    sync(final.parent)
