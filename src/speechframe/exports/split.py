"""Split rows into parts such as train and test, so that no text and no speaker is in two parts."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from speechframe.errors import ExportError
from speechframe.exports.chosen_rows import Grades, choose_rows, index_rows, open_runs
from speechframe.exports.quality import grade_runs
from speechframe.spec.texts import strip_pauses
from speechframe.store.rows import ROW_ID_COLUMN, Selection
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd

_TEXTS = ("text", "transcription")
_FIRST_SPLITS = ("train", "valid", "validation", "dev", "test")
"""Usual splits, which come first in reports and cards."""


def split(
    runs: Any,
    shares: Mapping[str, float],
    *,
    groups: Sequence[str] = (),
    strata: Sequence[str] = (),
    previous: "pd.Series | None" = None,
    seed: int = 0,
    only: str = "kept",
    quality: "pd.DataFrame | None" = None,
    progress: bool = True,
) -> "pd.Series":
    """Return the split of each row that :func:`export` would write with the same `only` and `quality`.

    Rows that share a text, or a value of one of the columns `groups`, are one group. Groups are transitive,
    and a group is never divided between splits.

    Parameters
    ----------
    runs
        A run, its folder, rows of it such as ``run.select(...)``, or a list of these.
    shares
        Share of the rows in each split, such as ``{"train": 0.9, "valid": 0.05, "test": 0.05}``. The sum must
        be 1.
    groups
        Columns whose equal values keep rows together, such as a speaker. Null values keep no rows together.
    strata
        Columns whose values are spread over all splits, such as ``voice_id``. Each value with enough groups
        is in each split.
    previous
        The result of an earlier call. Rows in it keep their split. A new row whose group is in two splits is
        left out, and ``result.attrs["left_out"]`` lists it.
    seed
        Seed of the draw. Equal seeds and rows give equal splits.
    only, quality, progress
        As for :func:`export`.

    Returns
    -------
    pandas.Series
        Name of the split, by ``row_id`` for one run, and by ``run_id`` and ``row_id`` for a list of runs.

    Raises
    ------
    ExportError
        The shares are not positive or their sum is not 1, a run lacks a column, or a value of `strata` is the
        same for all rows of each group, so that it cannot be spread.

    Examples
    --------
    >>> import speechframe as spf
    >>> parts = spf.split(run, {"train": 0.9, "test": 0.1}, strata=["voice_id"])  # doctest: +SKIP
    >>> spf.export(run, "out/corpus", split=parts)  # doctest: +SKIP
    """
    import pandas as pd

    _check_shares(shares)
    for argument, columns in (("groups", groups), ("strata", strata)):
        if isinstance(columns, str):
            raise ExportError(f"{argument}={columns!r} must be a list of columns, such as [{columns!r}]")
    opened = open_runs(runs)
    _, grades = grade_runs(opened, only, quality, progress=progress)
    rows = [row for given in opened for row in _read_rows(given, grades, groups, strata)]
    group_of = connect_rows([(row["text"], *row["groups"]) for row in rows])
    members: dict[int, list[int]] = defaultdict(list)
    for position, group in enumerate(group_of):
        members[group].append(position)
    earlier = {} if previous is None else as_splits(previous, opened)
    fixed, left_out = _keep_previous(rows, members, earlier, shares)
    by_group = fixed | draw_splits(rows, members, shares, fixed, seed)
    if strata:
        _check_strata(rows, group_of, strata)
    chosen: list[tuple[str, str, str]] = []
    for row, group in zip(rows, group_of, strict=True):
        name = earlier.get(row["key"]) or by_group.get(group)
        if name is not None and row["key"] not in left_out:
            chosen.append((*row["key"], name))
    frame = pd.DataFrame(chosen, columns=["run_id", "row_id", "split"])
    result: pd.Series = index_rows(runs, frame)["split"]
    result.attrs |= {"left_out": sorted(left_out), "splits": list(shares)}
    return result


def _check_shares(shares: Mapping[str, float]) -> None:
    if not shares or any(not share > 0 for share in shares.values()) or abs(sum(shares.values()) - 1) > 1e-6:  # noqa: PLR2004
        raise ExportError(
            f"shares={dict(shares)} must be positive with the sum 1, such as {{'train': .9, 'test': .1}}"
        )
    if unsafe := [name for name in shares if not name.replace("_", "").replace("-", "").isalnum()]:
        raise ExportError(f"{unsafe[0]!r} is not a name of a split: use letters, digits, - and _")


def _read_rows(
    given: Selection, grades: "Grades | None", groups: Sequence[str], strata: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the exported rows of a run: key, text, values of groups, and stratum."""
    run = given.run
    for column in (*groups, *strata):
        if column not in run.columns:
            raise ExportError(
                f"the run {run.short_path} has no column {column!r}; it has {', '.join(run.columns)}"
            )
    chosen = choose_rows(given, grades=grades)
    texts = [run.name_of(name) for name in _TEXTS if name in run.record_schema.names]
    names = list(dict.fromkeys([run.name_of(ROW_ID_COLUMN), *texts, *groups, *strata]))
    table = Selection(run, chosen.places).to_arrow(names)
    columns = {name: table.column(name).to_pylist() for name in names}
    found = []
    for position, row_id in enumerate(columns[names[0]]):
        text = next((columns[name][position] for name in texts if columns[name][position]), "")
        found.append(
            {
                "key": (run.run_id, row_id),
                "text": ("text", " ".join(strip_pauses(text).casefold().split())) if text else None,
                "groups": [
                    (name, columns[name][position]) if columns[name][position] is not None else None
                    for name in groups
                ],
                "stratum": tuple(columns[name][position] for name in strata),
            }
        )
    return found


def connect_rows(links: Iterable[Sequence[Any]]) -> list[int]:
    """Return the group of each row. Rows with an equal link are in one group, directly or through others."""
    parent: list[int] = []
    first_with: dict[Any, int] = {}

    def find_root(position: int) -> int:
        while parent[position] != position:
            parent[position] = position = parent[parent[position]]
        return position

    for position, row in enumerate(links):
        parent.append(position)
        for link in row:
            if link is None:
                continue
            roots = find_root(first_with.setdefault(link, position)), find_root(position)
            parent[max(roots)] = min(roots)
    return [find_root(position) for position in range(len(parent))]


def as_splits(given: Any, runs: Sequence[Selection]) -> dict[tuple[str, str], str]:
    """Return the split of each row by run id and row id, from a result of :func:`split` or a mapping.

    The usual splits come first, then the others in the order of the shares or of the mapping.
    """
    items = given.items() if hasattr(given, "items") else None
    if items is None:
        raise ExportError(
            "split= must be a result of split(), or a mapping from row id to the name of a split"
        )
    found: dict[tuple[str, str], str] = {}
    for key, name in items:
        if isinstance(key, tuple) and len(key) == 2:  # noqa: PLR2004 - run id and row id
            found[str(key[0]), str(key[1])] = str(name)
        elif len(runs) == 1:
            found[runs[0].run.run_id, str(key)] = str(name)
        else:
            raise ExportError(
                "split= of several runs must name run id and row id: give split() the same list of runs"
            )
    found = {key: name for key, name in found.items() if name not in {"", "None", "nan"}}
    order = [*_FIRST_SPLITS, *getattr(given, "attrs", {}).get("splits", ()), *dict.fromkeys(found.values())]
    return dict(sorted(found.items(), key=lambda item: order.index(item[1])))


def _keep_previous(
    rows: Sequence[Mapping[str, Any]],
    members: Mapping[int, Sequence[int]],
    earlier: Mapping[tuple[str, str], str],
    shares: Mapping[str, float],
) -> tuple[dict[int, str], set[tuple[str, str]]]:
    """Return the split of groups with earlier rows, and new rows that would join two splits."""
    fixed, left_out = dict[int, str](), set[tuple[str, str]]()
    for group, positions in members.items():
        names = {earlier[rows[position]["key"]] for position in positions if rows[position]["key"] in earlier}
        if unknown := names - shares.keys():
            raise ExportError(
                f"previous= has the split {unknown.pop()!r}, which shares= lacks: add it with its share"
            )
        if len(names) == 1:
            fixed[group] = names.pop()
        elif names:
            left_out |= {
                rows[position]["key"] for position in positions if rows[position]["key"] not in earlier
            }
            fixed[group] = min(names)
    return fixed, left_out


def draw_splits(
    rows: Sequence[Mapping[str, Any]],
    members: Mapping[int, Sequence[int]],
    shares: Mapping[str, float],
    fixed: Mapping[int, str],
    seed: int,
) -> dict[int, str]:
    """Return the split of each other group: large groups first, each into the split that lacks most rows.

    The split is chosen for each stratum, so that each of its values is spread. The order of groups is drawn
    from their rows, so it does not change when rows are added.
    """
    wanted = {stratum: dict(shares) for stratum in {row["stratum"] for row in rows}}
    sizes: dict[tuple[Any, ...], Counter[str]] = {stratum: Counter() for stratum in wanted}
    totals = Counter(row["stratum"] for row in rows)
    for group, name in fixed.items():
        for position in members[group]:
            sizes[rows[position]["stratum"]][name] += 1

    def order(group: int) -> tuple[int, str]:
        first = min(rows[position]["key"][1] for position in members[group])
        return -len(members[group]), hashlib.sha256(f"{seed} {first}".encode()).hexdigest()

    drawn: dict[int, str] = {}
    for group in sorted((group for group in members if group not in fixed), key=order):
        inside = Counter(rows[position]["stratum"] for position in members[group])

        def lack(name: str, inside: Counter[Any] = inside) -> float:
            # The share of the split that is still missing, over the strata of the group.
            return sum(
                number
                * (shares[name] * totals[stratum] - sizes[stratum][name])
                / (shares[name] * totals[stratum])
                for stratum, number in inside.items()
            )

        name = max(shares, key=lambda name: (lack(name), shares[name]))
        drawn[group] = name
        for stratum, number in inside.items():
            sizes[stratum][name] += number
    return drawn


def _check_strata(rows: Sequence[Mapping[str, Any]], group_of: Sequence[int], strata: Sequence[str]) -> None:
    """Raise ExportError for a column whose values cannot be spread, because groups keep each value together.

    Values with one row are too rare to be spread, so they do not count.
    """
    import pandas as pd

    for number, column in enumerate(strata):
        cells = pd.Series([row["stratum"][number] for row in rows], dtype=object)
        by_value = pd.Series(group_of).groupby(cells, sort=False, dropna=False)
        stuck = by_value.nunique()[by_value.size() > 1] == 1
        if len(stuck) and stuck.all():
            values = format_count(len(stuck), "value")
            raise ExportError(
                f"the column {column!r} cannot be spread: each of its {values} is in one group only. "
                "Leave it out of strata=, or leave the column that makes these groups out of groups="
            )
