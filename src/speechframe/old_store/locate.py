"""Where a run lies: here, or on another machine with a local folder for what is not there yet."""

import hashlib
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from speechframe.errors import StoreError
from speechframe.old_store.remote import BUCKETS, Remote, is_wrapped, protocols_of
from speechframe.settings.typed import expanded, is_address


def locate(path: "str | os.PathLike[str] | Remote", filesystem: Any = None) -> Path:
    """Return where a run lies: a path, or what the store uses of one on an fsspec filesystem.

    Parameters
    ----------
    path
        A local path, a URL (``s3://bucket/run``) of any filesystem that fsspec knows, or, with
        `filesystem`, a path on that.
    filesystem
        A filesystem of fsspec or of pyarrow; without it fsspec finds options and credentials by itself.

    Raises
    ------
    StoreError
        When it is no path or no address, or one that a `Path` has shortened; when the library for an address
        is missing, it cannot be reached, or the address holds a password.

    Examples
    --------
    >>> locate("runs/demo") == Path.cwd() / "runs/demo"
    True
    >>> str(locate("memory://bucket/run"))
    'memory://bucket/run'
    """
    given: Any = path
    if isinstance(given, Remote):
        return cast("Path", given)
    if filesystem is None and not isinstance(given, Path) and hasattr(given, "fs"):  # a UPath
        given, filesystem = given.path, given.fs
    text = _text(given)
    if filesystem is not None:
        return _on(_wrapped(filesystem), text)
    protocol, separator, rest = text.partition("://")
    if not separator:
        return _local(given, text)
    # The same in capitals, as in every address; fsspec knows it in small letters only.
    protocol = protocol.lower()
    text = f"{protocol}://{rest}"
    if protocol in {"file", "local"}:
        return Path(_text(rest)).absolute()
    if _password_in(text):
        raise StoreError(
            f"the address of a run ({protocol}://...) holds no password: configure it where fsspec looks for"
            " it, or give filesystem="
        )
    try:
        import fsspec

        return _on(*fsspec.url_to_fs(text))
    except (ImportError, ValueError) as error:
        raise StoreError(
            f"run folders at {protocol}:// need a library that is missing ({error}):"
            " pip install 'speechframe[s3]' for s3://, for others what fsspec names"
        ) from error
    except StoreError:
        raise
    except Exception as error:  # some connect or read already here, and raise what they like
        raise StoreError(
            f"{text} cannot be used as the address of a run ({type(error).__name__}: {error}); check it, "
            "or give filesystem= where it needs options"
        ) from error


def _password_in(text: str) -> bool:
    try:
        return urlsplit(text).password is not None
    except ValueError:
        # Not repeated: it may hold one.
        raise StoreError("the address of a run cannot be read: write it as protocol://host/folder") from None


def _text(given: Any) -> str:
    text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise StoreError(f"{given!r} is no folder of a run: give a path, or an address as text")
    if not text:
        raise StoreError(
            "'' is no folder of a run: give a path ('.' is the folder you are in), or an address"
        )
    if "\0" in text:
        raise StoreError(f"{given!r} is no folder of a run: it holds a NUL character, which no path can")
    _check_utf8(text)
    return text


def _local(given: Any, text: str) -> Path:
    if is_address(text):
        raise StoreError(
            f"{given!r} is an address without its second slash, which a Path takes away: pass it as a string,"
            " such as 's3://bucket/run'. A folder that is called so needs its absolute path."
        )
    try:
        # Absolute: a run goes on when its notebook changes folders.
        path = expanded(text).absolute()
    except ValueError as error:
        raise StoreError(f"{text}: {error}") from None
    _check_utf8(str(path))
    return path


def _check_utf8(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise StoreError(
            f"{path!r} cannot be the folder of a run: its name is not UTF-8, which Parquet files need, or "
            "that of a folder around it; choose another one"
        ) from None


def _on(fs: Any, path: str) -> Path:
    protocols = protocols_of(fs)
    text = str(path)
    if "file" in protocols or (is_wrapped(fs) and protocols == ("local",)):
        return Path(fs._strip_protocol(text))  # noqa: SLF001 - the name under which fsspec documents it
    stripped = str(fs._strip_protocol(text)).rstrip("/")  # noqa: SLF001
    # Paths on the web keep their protocol.
    has_protocol = stripped.startswith(tuple(f"{protocol}://" for protocol in protocols))
    address = stripped if has_protocol else f"{protocols[0]}://{stripped.lstrip('/')}"
    bucket, _, key = stripped.lstrip("/").partition("/")
    if key.startswith("/") and not BUCKETS.isdisjoint(protocols):
        # Its client lists such a folder as empty: what was paid for would be put there and never be found.
        raise StoreError(
            f"{address} has a folder without a name behind the bucket; likely meant: "
            f"{protocols[0]}://{bucket}/{key.lstrip('/')}"
        )
    return cast("Path", Remote(fs, stripped, address))


def _wrapped(filesystem: Any) -> Any:
    if type(filesystem).__module__.startswith("pyarrow"):
        from fsspec.implementations.arrow import ArrowFSWrapper

        return ArrowFSWrapper(filesystem)
    return filesystem


def is_remote(path: Any) -> bool:
    """Return whether a path that :func:`locate` returned is on another filesystem."""
    return isinstance(path, Remote)


def work_root() -> Path:
    """Return the folder of this user and machine that holds what remote runs have not put yet."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "speechframe" / "remote"


def shown(path: Path) -> str:
    """Return the path of a run as people would type it in the folder they are in."""
    with suppress(ValueError, OSError):
        return str(path if is_remote(path) else path.relative_to(Path.cwd()))
    return str(path)


def working(path: Path, run_id: str) -> Path:
    """Return `path` with the local folder that goes with it, if it is remote."""
    if not isinstance(path, Remote):
        return path
    # The run's id too: the same address may mean another store tomorrow.
    name = hashlib.blake2b(f"{path.address}\0{run_id}".encode(), digest_size=10).hexdigest()
    return cast("Path", replace(path, work=work_root() / name))


def work_folder(path: Path) -> Path:
    """Return the local folder with lock and log of the run in `path`."""
    if not isinstance(path, Remote):
        return path
    return path.draft().parent.parent
