"""Measure the toolkit and compare it with named references.

    make bench                                  # or: python -m benchmarks
    make bench ARGS="--only U15,W1 --rounds 5"  # some rows of the table, with more rounds
    make bench ARGS="--long --json out.json"    # a million table rows in M2 and R1

Most figures are ratios, because absolute times depend on the machine. The two sides of a ratio take turns within
one run. Each measurement runs in a new child process. The service is a `speechframe.testing.FaultyService` in
another process. Translation, voice changing, dubbing and streaming use the local service or its engines.

- `child` is the child process, and `lab` starts children and services.
- `jobs` and `stored` run speechframe in a child. `references` and `notebook` run the references.
- `pace`, `cost`, `memory`, `translating`, `changing`, `dubbing`, `streaming`, `reading`, `spending` and `quality`
  contain the rows of the table.
- `report` prints the table. `sound` measures the clarity of voices.
"""
