"""Figures of the toolkit beside named references, each a ratio within one run.

    make bench                                  # or: python -m benchmarks
    make bench ARGS="--only U15,W1 --rounds 5"  # some rows, more rounds
    make bench ARGS="--long --json out.json"    # a million rows where the row is about a million

Absolute times belong to one machine; a ratio of two things that took turns in
one run says more. Whatever is measured runs in a fresh child process, against
a `speechframe.testing.FaultyService` that is a process of its own; translation,
voice changing and streaming, against the local service.

`texts` are the rows, `references` and `notebook` the peers, `jobs` and `stored`
what we do: these run in the children. `child` is such a process, `lab` starts
them; `pace`, `cost`, `memory`, `translating`, `changing` and `streaming` hold the rows of the table,
`report` prints it.
"""
