"""Where a run is: a folder of this machine, or an address such as ``s3://bucket/run``."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from speechframe.errors import StoreError
from speechframe.settings.typed import expanded, is_address
from speechframe.store.folder import Folder
from speechframe.store.remote_folder import BUCKETS, Address, RemoteFolder, protocols_of


def open_folder(path: "str | os.PathLike[str] | Folder", filesystem: Any = None) -> Folder:
    """Return the folder of a run.

    Parameters
    ----------
    path
        A local path, an address (``s3://bucket/run``) of any filesystem that fsspec knows, or, with
        `filesystem`, a path on that.
    filesystem
        A filesystem of fsspec; without it fsspec finds options and credentials by itself.

    Raises
    ------
    StoreError
        When it is no path or no address, or one that a `Path` has shortened; when the library for an address
        is missing, it cannot be reached, or the address holds a password.

    Examples
    --------
    >>> open_folder("runs/demo").path == Path.cwd() / "runs/demo"
    True
    >>> str(open_folder("memory://bucket/run").path)
    'memory://bucket/run'
    """
    if isinstance(path, Folder):
        return path
    given: Any = path
    if filesystem is None and not isinstance(given, Path) and hasattr(given, "fs"):  # a UPath
        given, filesystem = given.path, given.fs
    text = _text(given)
    if filesystem is not None:
        return _remote(filesystem, text)
    protocol, separator, rest = text.partition("://")
    protocol = protocol.lower()
    if not separator:
        return Folder(_local(text))
    if protocol in {"file", "local"}:
        return Folder(Path(_text(rest)).absolute())
    if _has_password(text):
        raise StoreError(
            f"the address of a run ({protocol}://...) holds no password: configure it where fsspec looks for "
            "it, or give filesystem="
        )
    return _remote(*_found(f"{protocol}://{rest}", protocol))


def _found(address: str, protocol: str) -> tuple[Any, str]:
    """Return the filesystem of an address, and the path on it."""
    try:
        import fsspec

        found: tuple[Any, str] = fsspec.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise StoreError(
            f"run folders at {protocol}:// need a library that is missing ({error}): "
            "pip install 'speechframe[s3]' for s3://, for others what fsspec names"
        ) from error
    except Exception as error:  # some connect or read already here, and raise what they like
        raise StoreError(
            f"{address} cannot be used as the address of a run ({type(error).__name__}: {error}): check it"
        ) from error
    return found


def _remote(filesystem: Any, path: str) -> Folder:
    protocols = protocols_of(filesystem)
    stripped = str(filesystem._strip_protocol(path))  # noqa: SLF001 - the name under which fsspec documents it
    if "file" in protocols:
        return Folder(Path(stripped))
    stripped = stripped.rstrip("/")
    # Paths on the web keep their protocol.
    has_protocol = stripped.startswith(tuple(f"{protocol}://" for protocol in protocols))
    text = stripped if has_protocol else f"{protocols[0]}://{stripped.lstrip('/')}"
    bucket, _, key = stripped.lstrip("/").partition("/")
    if key.startswith("/") and not BUCKETS.isdisjoint(protocols):
        # Such a folder is listed as empty, so that what was paid would never be found again.
        raise StoreError(
            f"{text} has a folder without a name behind the bucket; likely meant: "
            f"{protocols[0]}://{bucket}/{key.lstrip('/')}"
        )
    return RemoteFolder(filesystem, Address(text, stripped))


def _text(given: Any) -> str:
    text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise StoreError(
            f"{given!r} is no folder of a run: give a path ('.' is the current folder) or an address"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise StoreError(
            f"{text!r} is no folder of a run: its name is not UTF-8; choose another one"
        ) from None
    return text


def _local(text: str) -> Path:
    if is_address(text):
        raise StoreError(
            f"{text!r} is an address without its second slash, which a Path takes away: pass it as a string, "
            "such as 's3://bucket/run'. A folder that is called so needs its absolute path."
        )
    try:
        # Absolute: a run goes on when its notebook changes folders.
        return Path(_text(expanded(text).absolute()))
    except ValueError as error:
        raise StoreError(f"{text}: {error}") from None


def _has_password(text: str) -> bool:
    try:
        return urlsplit(text).password is not None
    except ValueError:
        # Not repeated: it may hold one.
        raise StoreError("the address of a run cannot be read: write it as protocol://host/folder") from None
