"""Make a listener's test as one page that works offline.

The names of the sounds on the page do not reveal any condition. Only the folder of the test contains the
condition of each sound. The page saves votes on slots (places of sounds) with a checksum, which shows whether
the file was damaged. It does not stop a listener from sending other votes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from speechframe.page.html import make_saved_page

__all__ = ["make_offline_page"]


def make_offline_page(plan: Mapping[str, Any], clips: Iterable[tuple[str, bytes, str]]) -> str:
    """Return the offline page of a listener as HTML.

    Parameters
    ----------
    plan
        Content of the listener's pages, as :meth:`~speechframe.listening.test.Test.plan` returns it.
    clips
        Name, bytes and content type of each sound.

    Raises
    ------
    StoreError
        A sound cannot be read.
    """
    # Only the bar with the button that saves the votes knows whether the browser and a file have them.
    texts = {**plan["texts"], "stop": "", "all_saved": ""}
    state = {"plan": {**plan, "texts": texts}}
    return make_saved_page(
        "listening",
        state,
        clips,
        title=plan["title"],
        model="offline",
        lang=plan["locale"],
        direction=plan["direction"],
    )
