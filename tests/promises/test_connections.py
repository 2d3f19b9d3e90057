"""A connection that gave an answer to another row's text is not used for a third row."""

import contextlib
import socket
import threading

import pytest
from accounts import statuses

import speechframe as spf

SENTENCE = "The harbour lay quiet at last. "
TIMES = (1, 9, 3, 27, 2)
"""How often lines repeat the sentence. No line is taken for one of its neighbours."""


class LateTwice:
    """A relay that gives one answer a second time, late: from then on its connection is one answer behind."""

    def __init__(self, service, *, twice):
        self._upstream, self._twice = (service.settings.base_url.split("//")[1].split(":")), twice
        self._lock, self._spoken = threading.Lock(), 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._relay, args=(connection,), daemon=True).start()

    def _relay(self, client):
        upstream = socket.create_connection((self._upstream[0], int(self._upstream[1].strip("/"))))
        late = None
        with client, upstream, contextlib.suppress(OSError):
            reader, answers = client.makefile("rb"), upstream.makefile("rb")
            while request := _message(reader):
                upstream.sendall(request)
                answer = _message(answers)
                if late is not None:
                    late, answer = answer, late
                elif b"/generate" in request.partition(b"\r\n")[0]:
                    with self._lock:
                        self._spoken += 1
                        late = answer if self._spoken == self._twice else None
                client.sendall(answer)


def _message(file):
    """Return one message of HTTP with a length, as it came; empty at the end."""
    head = b""
    while line := file.readline():
        head += line
        if line == b"\r\n":
            break
    lengths = [
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    return head + file.read(sum(lengths))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_late_second_answer_harms_one_row(services, tmp_path, concurrency):
    service = services(limits_page=False)
    texts = [f"{SENTENCE * TIMES[n % len(TIMES)]}{n}" for n in range(20)]
    relay = LateTwice(service, twice=5)
    settings = spf.Settings(base_url=relay.url, api_key=service.api_key)
    options = {"voice": "en-US-nora", "sample_rate": 8000, "progress": False, "service": settings}
    run = spf.generate(texts, run_dir=tmp_path / "run", max_concurrency=concurrency, max_retakes=0, **options)
    relay.close()
    found = statuses(run)
    assert found.count("suspect") == 1
    assert found.count("done") == len(texts) - 1
