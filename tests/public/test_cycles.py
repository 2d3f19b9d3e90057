"""No module of the rooms that make runs is in an import cycle with another, imports within functions counted."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import speechframe

ROOT = Path(speechframe.__file__).parents[1]
ROOMS = ("verbs", "backends", "tables", "batch", "store", "client")


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for room in ROOMS for path in (ROOT / "speechframe" / room).rglob("*.py")}


def imported_by(name, source):
    """Return the modules of the rooms that a module imports anywhere, also for type checkers alone."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
    return (found & MODULES.keys()) - {name}


def test_imports_within_functions_and_for_type_checkers_are_found():
    source = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from speechframe.batch.live import Run\n"
        "def f():\n    from speechframe.store import parts\n    import speechframe.tables.table\n"
    )
    wanted = {"speechframe.batch.live", "speechframe.store.parts", "speechframe.tables.table"}
    assert imported_by("speechframe.batch.run", source) == wanted


def test_no_module_of_a_room_is_in_a_cycle():
    graph = {name: imported_by(name, path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
    assert sum(map(len, graph.values())) > len(MODULES), "imports are not found"
    # It raises CycleError, which names the modules of the cycle.
    order = list(TopologicalSorter(graph).static_order())
    assert set(order) == MODULES.keys()
