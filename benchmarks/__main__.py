"""Run the benchmarks: ``python -m benchmarks --only U15,W1 --rounds 3``."""

import argparse
import os
import sys
import time
from functools import partial

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
from benchmarks.report import BUSY_SHARE, TABLE_HEADER, describe_machine

ROWS = {
    "U15": partial(pace.measure_known_cap, cap=15, latencies=100, least=0.97),
    "U2": partial(pace.measure_known_cap, cap=2, latencies=120, least=0.985),
    "U100": partial(pace.measure_known_cap, cap=100, latencies=60, least=0.90),
    "W1": pace.measure_w1,
    "W2": pace.measure_w2,
    "W3": pace.measure_w3,
    "W4": pace.measure_w4,
    "W5": pace.measure_w5,
    "E60": cost.measure_e60,
    "M1": memory.measure_m1,
    "M2": memory.measure_m2,
    "R1": memory.measure_r1,
    "Q1": spending.measure_q1,
    "X1": exporting.measure_x1,
    "X2": exporting.measure_x2,
    "QF": quality.measure_qf,
    "Q2": quality.measure_q2,
    "N1": scaling.measure_n1,
    "N2": scaling.measure_n2,
    "V1": changing.measure_v1,
    "D1": dubbing.measure_d1,
    "T1": translating.measure_t1,
    "S1": partial(streaming.measure_first_audio, way="http"),
    "S2": partial(streaming.measure_first_audio, way="socket"),
    "S3": streaming.measure_s3,
    "S4": streaming.measure_s4,
    "S5": streaming.measure_s5,
    "L1": reading.measure_l1,
}
"""The rows of the table by name, in the order of docs/performance.md."""


def main() -> int:
    if sys.argv[1:2] == ["sound"]:
        return sound.main(sys.argv[2:])
    options = _parse_options()
    remarks, broken = [], False
    if os.getloadavg()[0] > 0.5:
        remarks.append("The machine was busy. Ratios of CPU are valid, but figures of time and pace are not.")
    print(f"{describe_machine()}; {options.rounds} rounds\n\n{TABLE_HEADER}", flush=True)
    with Lab(rounds=options.rounds, tiny=options.tiny) as lab:
        for name in options.only:
            began, lab.service_share = time.monotonic(), 0.0
            try:
                for figure in ROWS[name](lab):
                    print(figure.format_line(name), flush=True)
            except BrokenRowError as error:
                broken = True
                print(f"| {name} | BROKEN: {error} | | | | |", flush=True)
            remarks.append(f"{name} took {time.monotonic() - began:.0f} s.")
            if lab.service_share > BUSY_SHARE:
                remarks.append(
                    f"{name}: the service used {lab.service_share:.0%} of a core and set the pace."
                )
    print("", *remarks, sep="\n")
    return 1 if broken else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=benchmarks.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", type=_parse_row_names, default=list(ROWS),
        help=f"names of rows, with commas (default: {','.join(ROWS)})",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=int, default=1, help="number of rounds. A figure is their median (%(default)s)"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="only test that every row works. The figures are not valid"
    )
    return parser.parse_args()


def _parse_row_names(words: str) -> list[str]:
    names = words.split(",")
    unknown = sorted(set(names) - set(ROWS))
    if unknown:
        raise argparse.ArgumentTypeError(f"the row {unknown[0]} is unknown; allowed: {', '.join(ROWS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
