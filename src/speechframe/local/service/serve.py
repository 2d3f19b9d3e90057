"""Run the service as a command: ``speechframe serve`` or ``python -m speechframe.local.service``."""

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from dataclasses import fields
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, get_type_hints

from speechframe.errors import SettingsError
from speechframe.local.service import folders
from speechframe.local.service.config import (
    KeySpec,
    ServeOptions,
    ServiceConfig,
    parse_dub_key,
    parse_key,
    parse_keys,
)
from speechframe.settings import find_default_service_folder, is_loopback
from speechframe.settings.hidden import Hidden
from speechframe.spec import chosen
from speechframe.spec.limits import REGIONS

log = logging.getLogger("speechframe.service")

EXIT_FAILED = 1
"""Exit code if the service cannot start."""
EXIT_WRONG_USAGE = 2
"""Exit code for a wrong option, as in argparse."""

_STDIN_NAME = "-"
"""Value of ``--keys-file`` that selects standard input."""
_PARENT_CHECK_INTERVAL_S = 1.0
"""Seconds between two checks whether the parent process is alive."""
_SHUTDOWN_TIMEOUT_S = 3.0
"""Seconds that aiohttp waits for open connections when the service stops."""
_ENGINE_MODULES = ("espeakng_loader", "multipart", "python_stretch", "soxr")
"""Modules of the extra ``local``, without which no call or no voice works."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the service to `parser`."""
    for name, hint in get_type_hints(ServeOptions, include_extras=True).items():
        option, default = f"--{name.replace('_', '-')}", getattr(ServeOptions, name)
        kind, description = hint.__origin__, hint.__metadata__[0]
        metavar = {"s": "S", "mb": "MB"}.get(name.rpartition("_")[2], "N" if kind is int else name.upper())
        if kind is bool:
            parser.add_argument(option, action="store_true", help=description)
            continue
        parser.add_argument(
            option,
            type=int if kind is int else _parse_seconds if kind is float else str,
            default=default,
            help=f"{description} (%(default)s)" if default else description,
            **({"choices": sorted(REGIONS)} if name == "region" else {"metavar": metavar}),
        )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of keys, balances and audio")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        type=Hidden,
        metavar="KEY[:QUOTA[:CONCURRENCY]]",
        help=f"a key to accept, with characters a month ({chosen.DEFAULT_QUOTA_CHARACTERS:,}) and "
        f"requests at once ({chosen.DEFAULT_CONCURRENCY}); repeatable. Without one, the key in DIR/key is "
        "used, made on first use. Other users of the machine can see options: prefer --keys-file",
    )
    parser.add_argument(
        "--keys-file", metavar="FILE", help="file of keys, one a line, # comments; - reads standard input"
    )
    parser.add_argument(
        "--dub-key",
        action="append",
        default=[],
        type=Hidden,
        metavar="KEY[:CREDITS]",
        help=f"a key of the dubbing calls, with credits a month ({chosen.DEFAULT_DUB_CREDITS:,}); "
        "repeatable. Without one, these calls accept the other keys",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON line with url and keys once it answers"
    )
    parser.add_argument(
        "--allow-remote", action="store_true", help="allow a --host that other machines can reach"
    )
    parser.add_argument(
        "--voices",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="folder of Piper voices (NAME.onnx with NAME.onnx.json) for the gen2 catalogue; repeatable. "
        "Instead of SPEECHFRAME_VOICES",
    )
    parser.add_argument(
        "--translation-models",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="folder of Firefox-Translations models, one or several; repeatable",
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="warning")
    parser.add_argument(
        "--die-with-parent", action="store_true", help="end when standard input ends or the parent does"
    )


def _parse_seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("must be more than 0 seconds")
    return seconds


def main(argv: list[str] | None = None) -> int:
    """Run the service with the command line options `argv` until it stops. Return the exit code.

    None reads the options of this process. A wrong option raises SystemExit, as argparse does.
    """
    parser = argparse.ArgumentParser(prog="python -m speechframe.local.service", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))


def run(options: argparse.Namespace) -> int:
    """Serve until a signal stops the service. Return the exit code.

    The code is 0, 1 if the service could not start, or 2 if an option is wrong.

    Parameters
    ----------
    options
        Parsed options of :func:`add_arguments`.
    """
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    # Only this user may read the service's files, even in a folder that others can read.
    os.umask(0o077)
    code = EXIT_WRONG_USAGE
    try:
        config = build_config(options)
        code = EXIT_FAILED
        _check_extra()
        folders.set_voice_folders(options.voices)
        folders.set_translation_folders(options.translation_models)
        return asyncio.run(_serve(config, options))
    except SettingsError as error:
        if options.json:
            _print_line(json.dumps({"error": str(error)}))
        sys.stderr.write(f"speechframe serve: {error}\n")
        return code


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _check_extra() -> None:
    missing = [name for name in _ENGINE_MODULES if find_spec(name) is None]
    if missing:
        raise SettingsError(f"the local service needs {', '.join(missing)}: pip install 'speechframe[local]'")


def build_config(options: argparse.Namespace) -> ServiceConfig:
    """Return the options as a configuration.

    Raises
    ------
    SettingsError
        A key is not valid, a file cannot be read, a number is out of range, or other machines can reach the
        address and ``--allow-remote`` is missing.
    """
    if not options.allow_remote and not is_loopback(options.host):
        raise SettingsError(
            f"{options.host} can be reached from other machines, and keys would travel as plain text; "
            "use 127.0.0.1, or --allow-remote if that is what you want"
        )
    highest_port = 65_535
    if not 0 <= options.port <= highest_port:
        raise SettingsError(
            f"{options.port} is not a port; allowed: 0 to {highest_port} (0 takes a free port)"
        )
    for name in ("workers", "dub_workers", "queue", "shelf_mb"):
        if getattr(options, name) < 0:
            raise SettingsError(f"--{name.replace('_', '-')} must not be negative")
    if options.max_upload_mb < 1:
        raise SettingsError("--max-upload-mb must be at least 1")
    return ServiceConfig(
        data=options.data or find_default_service_folder(),
        keys=(*map(parse_key, options.key), *_read_keys(options.keys_file)),
        dub_keys=tuple(map(parse_dub_key, options.dub_key)),
        **{option.name: getattr(options, option.name) for option in fields(ServeOptions)},
    )


def _read_keys(name: str | None) -> tuple[KeySpec, ...]:
    if name is None:
        return ()
    if name == _STDIN_NAME:
        return parse_keys(_read_stdin_keys())
    try:
        text = Hidden(Path(name).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise SettingsError(f"the keys file {name} cannot be read: {error.strerror}") from None
    keys = parse_keys(text)
    if not keys:
        raise SettingsError(f"the keys file {name} does not contain a key")
    return keys


def _read_stdin_keys() -> Hidden:
    # Read up to an empty line, byte by byte. The rest of the input must stay for --die-with-parent.
    # The repr of a BytesIO does not show its content, so no traceback shows the keys.
    text, before = BytesIO(), b"\n"
    while (byte := os.read(0, 1)) and not byte == before == b"\n":
        text.write(byte)
        before = byte
    return Hidden(text.getvalue().decode(errors="replace"))


async def _serve(config: ServiceConfig, options: argparse.Namespace) -> int:
    # The web server is imported here, so that `speechframe --help` does not wait for it.
    from aiohttp import web

    from speechframe.local.service.app import make_app
    from speechframe.local.service.http.connection import build_refusal
    from speechframe.local.service.state import STATE
    from speechframe.network.connections import Connections, collapse_repeats
    from speechframe.network.descriptors import raise_descriptor_limit

    loop = asyncio.get_running_loop()
    stop, at_once = asyncio.Event(), asyncio.Event()
    _stop_on_signals(loop, stop, at_once)
    raise_descriptor_limit()
    with _open_listener(config) as listener, collapse_repeats("asyncio", log.name):
        if options.die_with_parent:
            _watch_parent(loop, stop, at_once)
        app = make_app(config)
        runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_TIMEOUT_S
        )
        try:
            if not await _finish_unless_stopped(stop, runner.setup()):
                return 0
            if (made := runner.server) is None:
                raise RuntimeError("the runner made no server")
            state = app[STATE]
            connections = Connections(
                made,
                refusal=build_refusal,
                header_timeout_s=config.body_timeout_s,
                log=log,
                watcher=state.readers,
            )
            server = await connections.listen(listener)
            left_out = len(state.pools.fast.left_out)
            _announce(config, listener, state.specs, left_out=left_out, as_json=options.json)
            await stop.wait()
            state.stopping = True
            state.live.stopping.set()
            server.close()
            await _wait_for_first(state.wait_until_idle(), at_once.wait(), limit_s=config.grace_s)
            # Unfinished calls now get a 503 instead of a cut connection.
            await state.pools.close()
        finally:
            await runner.cleanup()
    return 0


def _stop_on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, at_once: asyncio.Event) -> None:
    def request_stop() -> None:
        # The first signal lets requests in flight finish. The second one stops the service at once.
        (at_once if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, request_stop)


def _watch_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, at_once: asyncio.Event) -> None:
    parent = os.getppid()

    def stop_at_once() -> None:
        stop.set()
        at_once.set()

    def read_stdin() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop_at_once()

    def check_parent() -> None:
        # Standard input may stay open after the parent has died, if a fork of the parent still holds it.
        if os.getppid() == parent:
            loop.call_later(_PARENT_CHECK_INTERVAL_S, check_parent)
        else:
            stop_at_once()

    try:
        loop.add_reader(0, read_stdin)
    except (OSError, ValueError):
        raise SettingsError("--die-with-parent needs a pipe as standard input") from None
    check_parent()


def _open_listener(config: ServiceConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family)
    except PermissionError:
        raise SettingsError(
            f"port {config.port} needs more rights; choose one above 1023 with --port"
        ) from None
    except OSError as error:
        if isinstance(error, socket.gaierror):
            raise SettingsError(f"{config.host} is not an address of this machine") from None
        raise SettingsError(
            f"cannot listen on {config.host}:{config.port}: {error.strerror}. Is the service running "
            "already? Choose another port with --port, or 0 for a free one."
        ) from None


def _announce(
    config: ServiceConfig,
    listener: socket.socket,
    specs: tuple[KeySpec, ...],
    *,
    left_out: int,
    as_json: bool,
) -> None:
    port = listener.getsockname()[1]
    # Clients cannot connect to the wildcard address of a server.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)  # noqa: S104 - a comparison
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    if as_json:
        keys = [Hidden(spec.key.get_secret_value()) for spec in specs]
        report = {
            "url": url,
            "keys": keys,
            "pid": os.getpid(),
            "data": str(config.data),
            "left_out": left_out,
        }
        _print_line(Hidden(json.dumps(report)))
        return
    where = "the keys you gave" if config.keys else f"the key in {config.data / 'key'}"
    _print_line(f"speechframe answers at {url} with {where}; Ctrl-C stops it")


async def _finish_unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Wait until `work` ends and return True. If `stop` is set first, cancel `work` and return False."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        await working
        return True
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return False


async def _wait_for_first(*waited: Coroutine[Any, Any, object], limit_s: float) -> None:
    waits = [asyncio.ensure_future(one) for one in waited]
    await asyncio.wait(waits, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
