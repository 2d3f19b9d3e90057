"""Measure the toolkit and compare it with named references.

    make bench                                  # or: python -m benchmarks
    make bench ARGS="--only U15,W1 --rounds 5"  # some rows of the table, with more rounds
    make bench ARGS="--long --json out.json"    # a million table rows in M2 and R1

A row of the table has a name such as U15 and one or more figures. Most figures are ratios of speechframe to a
reference, because absolute times depend on the machine. The two sides of a ratio are measured in turns. Each
measurement runs in a new child process. The service is a `speechframe.testing.FaultyService` in another process.
Translation, voice changing, dubbing and streaming use the local service or its engines.

- `run_child` is the program of a child process. `lab` starts children and services.
- `jobs` and `stored` are jobs for children with speechframe. `references` and `notebook` are jobs without it.
- `pace`, `cost`, `memory`, `translating`, `changing`, `dubbing`, `streaming`, `reading`, `spending` and
  `quality` measure the rows of the table. `texts` has the texts for speech.
- `report` formats the table. `sound` measures the clarity of voices.
"""
