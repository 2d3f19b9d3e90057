"""A local S3 server in a process of its own; says its port, and ends when its standard input does.

Argument: the port, 0 for a free one.
"""

import logging
import sys

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


def main(port):
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", port, app, threaded=True)
    print(server.server_port, flush=True)  # noqa: T201 - read by the test that started it
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
