"""A backend by itself, without a run: what a row becomes, and what comes of one attempt."""

import asyncio
from dataclasses import replace

from speechframe.batch.backend import Attempt

KEY = "ab" * 16


def checked(make, rows):
    """Return what a backend says of each row."""

    async def go():
        backend = make()
        try:
            await backend.open()
            # In a thread, as a run does it.
            return await asyncio.to_thread(lambda: [backend.check(row) for row in rows])
        finally:
            await backend.close()

    return asyncio.run(go())


def sent(make, row, *, noted=None, notes=None, folder=None, between=lambda: None, requests=None):
    """Return the record of a row, and what speaks against it, after one attempt."""

    async def note(data):
        notes.append(data)

    async def admit(count):
        pass

    async def go():
        backend = make()
        backend.folder = folder
        try:
            opened = await backend.open()
            request = replace(await asyncio.to_thread(backend.check, row), key=KEY)
            if requests is not None:
                requests.append(request)
            between()
            attempt = Attempt(opened.lanes[0].name, 20.0, None, 0, noted, note, admit)
            (record,) = backend.records(request, await backend.send(request, attempt))
            return record, backend.judge(request, record, {})
        finally:
            await backend.close()

    return asyncio.run(go())


def problems(found):
    return {problem.field: str(problem) for problem in found} if isinstance(found, list) else {}
