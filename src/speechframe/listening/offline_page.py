"""Make a listener's test as one page that works offline, and compute the seal of the votes that it saves.

The names of the sounds on the page do not reveal any condition. Only the folder of the test contains the
condition of each sound. The page saves votes on slots (places of sounds) with a seal. A seal is a hash with a
key of the listener, and shows whether the file was damaged or edited. The page contains this key, so a
listener who reads the code of the page can still seal forged votes.
"""

import hmac
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from speechframe.listening.opaque import read_or_make_secret
from speechframe.page.html import make_saved_page

__all__ = ["compute_seal", "make_offline_page"]


def make_offline_page(
    plan: Mapping[str, Any], listener: str, folder: Path, clips: Iterable[tuple[str, bytes, str]]
) -> str:
    """Return the offline page of a listener as HTML.

    Parameters
    ----------
    plan
        Content of the listener's pages, as :meth:`~speechframe.listening.test.Test.plan` returns it.
    listener
        Name of the listener.
    folder
        Folder of the test.
    clips
        Name, bytes and content type of each sound.

    Raises
    ------
    StoreError
        The secret of the test or a sound cannot be read.
    """
    # Only the bar with the button that saves the votes knows whether the browser and a file have them.
    texts = {**plan["texts"], "stop": "", "all_saved": ""}
    state = {"plan": {**plan, "texts": texts}, "seal_key": _derive_seal_key(folder, listener)}
    return make_saved_page(
        "listening",
        state,
        clips,
        title=plan["title"],
        model="offline",
        lang=plan["locale"],
        direction=plan["direction"],
    )


def compute_seal(record: str, listener: str, folder: Path) -> str:
    """Return the seal of a listener's votes, in hexadecimal."""
    return hmac.digest(bytes.fromhex(_derive_seal_key(folder, listener)), record.encode(), "sha256").hex()


def _derive_seal_key(folder: Path, listener: str) -> str:
    return read_or_make_secret(folder).make_key("seal", listener)
