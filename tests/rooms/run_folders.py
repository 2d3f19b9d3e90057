"""Makes run folders by the journal and parts themselves, without a service."""

import hashlib
import uuid

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.store import journal, parts
from speechframe.store.folder import Folder, Manifest, TableEntry, described
from speechframe.store.schema import (
    AUDIO_TYPE,
    BASE_KEY,
    INPUT_COLUMNS,
    ROW_ID,
    TAKE,
    WORDS_TYPE,
    call_key,
    columns,
)

COLUMNS = columns(
    text=pa.string(),
    audio=AUDIO_TYPE,
    format=pa.string(),
    sample_rate=pa.int32(),
    audio_seconds=pa.float64(),
    word_durations=WORDS_TYPE,
)


def base_key(text):
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def make_run(folder, frame, *, takes=None, invalid=(), ids=None, names=None, id_column=None):
    """Make a run's folder with a table, before any call."""
    table = pa.Table.from_pandas(frame)
    texts = frame["text"].tolist()
    ours = {
        ROW_ID: ids or [str(label) for label in frame.index],
        BASE_KEY: [None if place in invalid else base_key(text) for place, text in enumerate(texts)],
        TAKE: takes or [0] * len(texts),
    }
    for field in INPUT_COLUMNS:
        values = ours.get(field.name, [None] * len(texts))
        table = table.append_column(field, pa.array(values, field.type))
    name = "input/0001.parquet"
    pq.write_table(table, folder.temporary(name), row_group_size=7)
    folder.publish(name)
    entry = TableEntry(name, len(texts), id_column=id_column, names=names or {})
    manifest = Manifest(uuid.uuid4().hex, "generate", "test/1", described(COLUMNS), tables=[entry])
    manifest.write(folder)
    return manifest


class Writer:
    """Writes answers into a run."""

    def __init__(self, folder):
        self.folder = folder
        self.log = journal.Journal(
            folder, parts.next_number(folder), {"run_id": "r", "operation": "generate"}
        )

    def answer(self, text, status="done", take=0, audio=None, **values):
        key = call_key(base_key(text), take)
        part = {"request_key": key, "take": take, "millicredits": 1000}
        self.log.sent(call=key, attempt=1, lane="us", time=1.7e9, parts=[part])
        finished = status in {"done", "suspect", "cached"}
        audio = audio if audio is not None else f"audio of {text} {take}".encode()
        row = {"request_key": key, "take": take, "status": status, "text": text, "credits": 1.0, "attempts": 1,
               "finished_at": 1.7e9}  # fmt: skip
        if finished:
            row |= {"audio": "a.wav", "format": "WAV", "sample_rate": 8000, "audio_seconds": 1.0,
                    "sha256": hashlib.sha256(audio).hexdigest()}  # fmt: skip
        row |= values
        ended = journal.Ended(1000, "computed", row, audio if finished else None)
        self.log.ended(key, status, [ended])

    def cut(self):
        closed = self.log.roll()
        parts.cut(self.folder, closed(), COLUMNS)


def frame_of(texts):
    return pd.DataFrame({"text": texts})


def new_folder(path):
    return Folder(path)
