"""Measure the toolkit and compare it with named references.

    make bench                                  # or: python -m benchmarks
    make bench ARGS="--only U15,W1 --rounds 5"  # some rows of the table, with more rounds

A row of the table has a name such as U15 and the figures of docs/performance.md. Most figures are ratios of
speechframe to a reference, because absolute times depend on the machine. The two sides of a ratio are measured in
turns. Each measurement runs in a new child process, in a folder of its own. The service is a
`speechframe.testing.FaultyService` in another process. Translation, voice changing, dubbing and streaming use the
local service or its engines.

- `child` is the program of a child process. `lab` starts children and services.
- `jobs` has jobs with speechframe that several rows use. `references` and `notebook` are jobs without it.
- `pace`, `cost`, `memory`, `translating`, `changing`, `dubbing`, `streaming`, `reading`, `spending`, `quality`,
  `exporting` and `scaling` measure the rows of the table. `texts` has the texts for speech.
- `report` formats the table. `sound` measures the clarity of voices.
"""
