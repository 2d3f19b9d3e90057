"""The command ``speechframe cache``, which lists and prunes the answers that runs share."""

import argparse
import heapq
from typing import TYPE_CHECKING, Any

from speechframe.cli import exits, show
from speechframe.cli.actions import add_action, add_actions, make_integer_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from speechframe.store.cache import Cache

_DEFAULT_SHOWN_ENTRIES, _MAX_SHOWN_ENTRIES = 20, 10**9
"""Default and largest number of entries that ``ls`` lists."""
_DESCRIPTION = (
    "The cache is a folder of answers that several runs can use. A call with a cached answer is free. "
    "Runs use the cache with --cache, or if SPEECHFRAME_CACHE is set."
)
_TABLE_HEAD = ("last_used", "size", "seconds", "format", "voice", "locale", "service", "request_key")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions ``ls`` and ``prune``."""
    parser.description = _DESCRIPTION
    below = add_actions(parser)
    ls = _add_cache_action(below, "ls", "List entries, the last used first, and their total size.")
    ls.add_argument(
        "--by",
        choices=("used", "size"),
        default="used",
        help="order: last used first, or largest first (default: %(default)s)",
    )
    ls.add_argument(
        "--most",
        type=make_integer_parser(0, _MAX_SHOWN_ENTRIES),
        default=_DEFAULT_SHOWN_ENTRIES,
        metavar="N",
        help="number of entries to list (default: %(default)s)",
    )
    prune = _add_cache_action(
        below, "prune", "Remove entries until the limits hold, the least recently used first."
    )
    prune.add_argument(
        "--max-gb",
        type=_parse_limit,
        metavar="NUMBER",
        help="largest size of the cache afterwards, in GB of 2**30 bytes (default: setting cache_max_gb)",
    )
    prune.add_argument(
        "--max-age-days",
        type=_parse_limit,
        metavar="NUMBER",
        help="remove entries unused for this many days (default: cache_max_age_days of the settings)",
    )
    prune.add_argument("--dry-run", action="store_true", help="only show the number of entries to remove")


def _add_cache_action(below: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser = add_action(below, name, summary)
    parser.add_argument(
        "--cache",
        metavar="PATH",
        help="the folder of the cache (default: the one in the settings, or else the user's)",
    )
    return parser


def _parse_limit(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of at least 0")
    return number


def run(options: argparse.Namespace) -> int:
    """List or prune the cache. Return the exit code."""
    from speechframe import settings
    from speechframe.errors import SettingsError
    from speechframe.settings.spending import read_cache_rules
    from speechframe.store.cache import open_cache

    try:
        cache = open_cache(True, **read_cache_rules(settings.read_settings(cache=options.cache)))
    except SettingsError as error:
        options.parser.error(str(error))
    assert cache is not None  # noqa: S101 - open_cache(True) returns a cache
    return _list(cache, options) if options.action == "ls" else _prune(cache, options)


def _list(cache: "Cache", options: argparse.Namespace) -> int:
    count, seconds = 0, 0.0

    def iterate_counted_entries() -> "Iterator[dict[str, Any]]":
        nonlocal count, seconds
        for entry in cache.entries():
            count += 1
            seconds += entry["audio_seconds"] or 0.0
            yield entry

    by_size = options.by == "size"
    shown = heapq.nlargest(
        options.most, iterate_counted_entries(), key=lambda e: e["bytes" if by_size else "last_used"]
    )
    size = cache.size()
    if options.json:
        totals = {"entries": count, "bytes": size, "audio_seconds": round(seconds, 3)}
        limits = {name: _replace_infinity(getattr(cache, name)) for name in ("max_bytes", "max_age_days")}
        show.print_json({"cache": str(cache.folder), **totals, **limits, "shown": shown})
        return exits.OK
    if shown:
        show.write_table(_TABLE_HEAD, map(_make_cells, shown))
    if count > len(shown):
        show.write_line(f"... and {count - len(shown):,} more")
    limit = "" if cache.max_bytes is None else f" of {show.format_size(cache.max_bytes)}"
    summary = f"{show.format_count(count, 'entry', 'entries')}, {seconds / 60:,.1f} minutes of audio"
    is_missing = options.cache and not cache.folder.is_dir()
    missing = " (the folder does not exist yet)" if is_missing else ""
    show.write_line(f"{cache.folder}{missing}: {summary}, {show.format_size(size)}{limit}")
    return exits.OK


def _make_cells(entry: "dict[str, Any]") -> list[Any]:
    shown = [
        show.format_time(entry["last_used"]),
        show.format_size(entry["bytes"]),
        show.format_seconds(entry["audio_seconds"]),
    ]
    return [*shown, *(entry[name] for name in ("format", "voice_id", "locale", "service", "key"))]


def _prune(cache: "Cache", options: argparse.Namespace) -> int:
    from speechframe.store.cache import GIBIBYTE

    max_bytes = None if options.max_gb is None else options.max_gb * GIBIBYTE
    done = cache.prune(max_bytes=max_bytes, max_age_days=options.max_age_days, dry_run=options.dry_run)
    if options.json:
        show.print_json({"cache": str(cache.folder), "dry_run": options.dry_run, **done})
        return exits.OK
    entries, left = (
        f"{show.format_count(done[count], 'entry', 'entries')} ({show.format_size(done[size])})"
        for count, size in (("entries", "bytes_freed"), ("entries_left", "bytes_left"))
    )
    verbs = ("would be removed", "would be left") if options.dry_run else ("removed", "left")
    show.write_line(f"{cache.folder}: {entries} {verbs[0]}; {left} {verbs[1]}")
    return exits.OK


def _replace_infinity(limit: float | None) -> float | None:
    # JSON has no value for infinity, which stands for no limit.
    return None if limit == float("inf") else limit
