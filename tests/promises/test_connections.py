"""A connection that gave an answer to another row's text is not used for a third row."""

import contextlib
import socket
import threading

from accounts import statuses

import speechframe as spf

SENTENCE = "The harbour lay quiet at last. "
TIMES = (1, 9, 27, 3, *(1, 9, 3, 2) * 4)
"""How often lines repeat the sentence. Nothing is taken for the one long line, and no line for its neighbours."""
LONG_BYTES = 27 * len(SENTENCE)


class LateTwice:
    """A relay that answers the long line twice: from then on its connection is one answer behind."""

    def __init__(self, service):
        self._upstream = service.settings.base_url.split("//")[1].split(":")
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
                elif len(request) > LONG_BYTES:
                    late = answer
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


def test_a_late_second_answer_harms_one_row(services, tmp_path):
    service = services(limits_page=False)
    texts = [f"{SENTENCE * times}{n}" for n, times in enumerate(TIMES)]
    relay = LateTwice(service)
    settings = spf.Settings(base_url=relay.url, api_key=service.api_key)
    options = {"voice": "en-US-nora", "sample_rate": 8000, "progress": False, "service": settings}
    run = spf.generate(texts, run_dir=tmp_path / "run", max_concurrency=1, max_retakes=0, **options)
    relay.close()
    found = statuses(run)
    assert found.count("suspect") == 1
    assert found.count("done") == len(texts) - 1
