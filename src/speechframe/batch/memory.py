"""How much memory the answers of a run may take together, until they are written down."""

import asyncio

from speechframe.errors import BadAnswer

MOST_BYTES = 256 << 20


class Memory:
    """Room for all answers together; each holder has what it was given until :meth:`release`."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held: dict[int, int] = {}
        self._changed = asyncio.Event()

    async def admit(self, holder: object, count: int) -> None:
        """Wait until there is room for so many more bytes of one answer.

        An answer that has part of its room already does not wait for more, because two such answers could
        wait for each other: it raises BadAnswer.
        """
        held = self._held.get(id(holder), 0)
        while sum(self._held.values()) + count > self._most_bytes:
            if held or count > self._most_bytes:
                raise BadAnswer(
                    f"there is no room for {count / 1e6:,.0f} MB more of an answer: all under way may "
                    f"have {self._most_bytes / 1e6:,.0f} MB together; a lower max_concurrency helps"
                )
            await self._changed.wait()
        self._held[id(holder)] = held + count

    def release(self, holder: object) -> None:
        """Give back the room of an answer that is written down, or of which nothing came."""
        if self._held.pop(id(holder), None) is not None:
            self._changed.set()
            self._changed = asyncio.Event()
