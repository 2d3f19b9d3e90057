"""Join the two parts of the packaged Whisper model. The joined model is kept in the user's cache folder."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from filelock import FileLock

from speechframe.errors import EngineFault
from speechframe.local.engines.models import WHISPER_BASE, check_file
from speechframe.settings import find_default_cache_folder

_MODEL_FILE = "model.bin"
_MODEL_SHA256 = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"
_FOLDER_NAME = f"whisper-base-{_MODEL_SHA256[:12]}"
_LOCK_TIMEOUT_S = 120.0
"""Timeout in seconds for the lock, which another process may hold while it joins the model."""


def prepare_model_folder() -> Path:
    """Return a folder with the complete packaged model after a check of its hashes.

    If the folder is missing or damaged, it is created in ``speechframe/models`` of the user's cache folder.
    If this is not possible, it is created in a temporary folder of this process.

    Raises
    ------
    EngineFault
        A package is missing or contains wrong files, or the disk is full.
    """
    parent = find_default_cache_folder().parent / "models"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with FileLock(parent / f"{_FOLDER_NAME}.lock", timeout=_LOCK_TIMEOUT_S):
            return _unpack(parent)
    except OSError:
        pass
    try:
        temporary = Path(tempfile.mkdtemp(prefix="speechframe-"))
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return _unpack(temporary)
    except OSError as error:
        raise EngineFault(
            f"the packaged Whisper model cannot be put together: neither {parent} nor a temporary folder "
            f"takes it ({error.strerror})"
        ) from error


def _unpack(parent: Path) -> Path:
    folder = parent / _FOLDER_NAME
    if _is_whole(folder):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_NAME}.", dir=parent))
    try:
        with (unfinished / _MODEL_FILE).open("wb") as joined:
            for source, name in _list_files():
                if name.startswith(_MODEL_FILE):
                    with source.open("rb") as part:
                        shutil.copyfileobj(part, joined, 1 << 20)
                else:
                    shutil.copyfile(source, unfinished / name)
            joined.flush()
            os.fsync(joined.fileno())
        check_file(unfinished / _MODEL_FILE, _MODEL_SHA256)
        # Rename last, so that a folder with this name is always complete.
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _list_files() -> list[tuple[Path, str]]:
    """Return the path and name of each file of both packages after a check, with the parts in order."""
    return [(package.get_file(name), Path(name).name) for package in WHISPER_BASE for name in package.sha256]


def _is_whole(folder: Path) -> bool:
    hashes = {Path(name).name: sha256 for package in WHISPER_BASE for name, sha256 in package.sha256.items()}
    wanted = {name: sha256 for name, sha256 in hashes.items() if not name.startswith(_MODEL_FILE)}
    try:
        for name, sha256 in (wanted | {_MODEL_FILE: _MODEL_SHA256}).items():
            check_file(folder / name, sha256)
    except EngineFault:
        return False
    return True
