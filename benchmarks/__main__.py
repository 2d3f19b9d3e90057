"""Run the benchmarks: ``python -m benchmarks --only U15,W1 --rounds 3 --long --json out.json``."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import benchmarks
from benchmarks import (
    changing,
    cost,
    dubbing,
    exporting,
    memory,
    pace,
    quality,
    reading,
    scaling,
    sound,
    spending,
    streaming,
    translating,
)
from benchmarks.lab import BrokenRowError, Lab
from benchmarks.report import TABLE_HEADER, Figure, describe_machine, format_table_line, list_remarks

ROWS = {
    **pace.ROWS,
    **cost.ROWS,
    **memory.ROWS,
    **translating.ROWS,
    **changing.ROWS,
    **dubbing.ROWS,
    **streaming.ROWS,
    **reading.ROWS,
    **spending.ROWS,
    **quality.ROWS,
    **exporting.ROWS,
    **scaling.ROWS,
}
ROW_ORDER = (
    "U15",
    "U2",
    "U100",
    "E60",
    "M1",
    "M2",
    "W1",
    "W2",
    "W3",
    "W4",
    "W5",
    "R1",
    "T1",
    "V1",
    "D1",
    "S1",
    "S2",
    "S3",
    "S4",
    "S5",
    "L1",
    "Q1",
    "Q2",
    "QF",
    "X1",
    "X2",
    "N1",
    "N2",
)


def main() -> int:
    if sys.argv[1:2] == ["sound"]:
        return sound.main(sys.argv[2:])
    options = _parse_options()
    load, began = os.getloadavg()[0], time.monotonic()
    figures: list[Figure] = []
    broken: list[str] = []
    print(
        f"{describe_machine()}\nload {load:.2f} before; {options.rounds} rounds\n\n{TABLE_HEADER}", flush=True
    )
    with Lab(rounds=options.rounds, long=options.long, tiny=options.tiny, profiled=options.profile) as lab:
        for name in options.only:
            try:
                for figure in ROWS[name](lab):
                    figures.append(figure)
                    print(format_table_line(figure.format_cells()), flush=True)
            except BrokenRowError as error:
                broken.append(name)
                print(format_table_line([name, f"BROKEN: {error}", "", "", "", "", ""]), flush=True)
    print(f"\nload {os.getloadavg()[0]:.2f} after {time.monotonic() - began:.0f} s")
    for remark in list_remarks(figures, load):
        print(remark)
    if options.json:
        found = {
            "machine": describe_machine(),
            "load_before": load,
            "rounds": options.rounds,
            "broken": broken,
        }
        found["figures"] = [figure.to_json() for figure in figures]
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 1 if broken else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=benchmarks.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        type=_parse_row_names,
        default=list(ROW_ORDER),
        help=f"names of rows, with commas (default: {','.join(ROW_ORDER)})",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="number of rounds. A figure is their median (%(default)s)"
    )
    parser.add_argument("--long", action="store_true", help="use a million table rows in M2 and R1")
    parser.add_argument("--json", metavar="FILE", help="also write all figures to this file")
    parser.add_argument(
        "--tiny", action="store_true", help="only test that every row works. The figures are not valid"
    )
    parser.add_argument(
        "--profile", action="store_true", help="profile every child. The figures are not valid"
    )
    return parser.parse_args()


def _parse_row_names(words: str) -> list[str]:
    names = words.split(",")
    unknown = sorted(set(names) - set(ROWS))
    if unknown:
        raise argparse.ArgumentTypeError(f"the row {unknown[0]} is unknown; allowed: {', '.join(ROW_ORDER)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
