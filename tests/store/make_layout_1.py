"""Writes layout-1, a small run folder as the first release writes it, left by a writer that was killed.

    python tests/store/make_layout_1.py

Run once, when layout 1 was released; later versions open the folder as it is.
"""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from store_cases import MOMENT, TABLE_SCHEMA, done, failed, key_of, manifest, sent, table_batch, tried

from speechframe.old_store import RunFolder
from speechframe.old_store import run as store_run

FOLDER = Path(__file__).parent / "layout-1"

# The sample says nothing of the machine it was made on.
store_run.user_name = lambda: "ada"
store_run.host_name = lambda: "studio"


def finished():
    """Write a table, a part with two clips, a failure and an attempt that may have been billed."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    said = manifest(
        created_at=MOMENT.isoformat(), speechframe_version="0.1.0", options={"voice": "en-US-nora"},
        local=True, audio_format="FLAC",
    )  # fmt: skip
    run = RunFolder.create(FOLDER, said)
    with run.lock():
        with run.add_table(TABLE_SCHEMA, id_column="line") as table:
            table.write(table_batch([*map(key_of, range(7)), None]))
        (entry,) = run.tables()
        run.update_manifest(tables=(replace(entry, added_at=MOMENT.isoformat()),))
        with run.writer(tags=["release"]) as out:
            for number in range(2):
                out.sent(sent(key_of(number), time=MOMENT))
                out.answer(done(key_of(number)), tried(key_of(number), time=MOMENT, tags=["release"]))
            out.answer(
                failed(key_of(2), finished_at=MOMENT), tried(key_of(2), "error", attempt=1, time=MOMENT)
            )
            out.sent(sent(key_of(3), time=MOMENT))


def killed():
    """Write two answers, leave a call in flight, and die while writing a third answer."""
    run = RunFolder.open(FOLDER)
    held = run.lock()
    held.__enter__()
    out = run.writer()
    out.sent(sent(key_of(4), time=MOMENT))
    out.attempt(tried(key_of(4), time=MOMENT))
    out.answer(done(key_of(4)))
    out.answer(done(key_of(5), status="suspect"), tried(key_of(5), attempt=1, time=MOMENT))
    out.sent(sent(key_of(6), time=MOMENT))
    out.flush()
    with next(FOLDER.glob("log/*/0001.log")).open("ab") as file:
        file.write(b"\xa5SFL\x03torn")
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    finished()
    subprocess.run([sys.executable, __file__, "killed"], check=False)
    for name in ("lock", "lock.json"):
        (FOLDER / name).unlink(missing_ok=True)


if __name__ == "__main__":
    killed() if sys.argv[1:] else main()
