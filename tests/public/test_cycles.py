"""Modules are in no cycle, however they import. Folders stay small. Each class has a name of its own."""

import ast
import functools
import tomllib
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import speechframe

SRC = Path(speechframe.__file__).parents[1]
PROJECT = tomllib.loads((SRC.parent / "pyproject.toml").read_text(encoding="utf-8"))
LAYERS = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
DEPTHS = {room.strip(): depth for depth, layer in enumerate(LAYERS) for room in layer.split("|")}
MOST_MODULES = 20
IMPORTERS = {"import_module", "__import__", "resolve_name"}
"""Functions of Python that import a module by its name."""


def name_of(path):
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in (SRC / "speechframe").rglob("*.py")}


def statements(node):
    """Yield all statements of a module, also those in functions. Expressions are skipped, which saves time."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from statements(inner)


def imported_by(source):
    """Return the modules of the package that a module imports in statements."""
    found = set()
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "a relative import"
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in MODULES else node.module for name in names}
    return found & MODULES.keys()


def imported_by_name(source):
    """Return the texts in a module that name a module, or begin its name, if the module imports by name."""
    if not any(word in source for word in IMPORTERS):
        return set()
    nodes = list(ast.walk(ast.parse(source)))
    used = {getattr(node, "id", getattr(node, "attr", getattr(node, "name", ""))) for node in nodes}
    if not IMPORTERS & used:
        return set()
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = {text.partition(":")[0] for text in texts if "." in text}
    return {name for name in names if name.removesuffix(".") in MODULES}


@functools.cache
def imports():
    sources = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}
    return {name: (imported_by(source), imported_by_name(source)) for name, source in sources.items()}


def depth_of(module):
    return DEPTHS.get(module.split(".")[1], -1) if "." in module else -1


def refused(module, targets):
    """Return the names that a module must not import: any but those of lower layers, in packages and commands."""
    is_allowed = MODULES[module].name == "__init__.py" or module.startswith("speechframe.cli.")
    return {name for name in targets if not is_allowed or depth_of(name) < depth_of(module)}


def test_imports_are_found_anywhere():
    source = """
if TYPE_CHECKING:
    from speechframe.batch.live import Run
def f():
    from speechframe.store import parts, journal
    try:
        pass
    except E:
        import speechframe.tables.table
"""
    assert imported_by(source) == {
        "speechframe.batch.live",
        "speechframe.store.parts",
        "speechframe.store.journal",
        "speechframe.tables.table",
    }


def test_imports_by_name_are_refused_but_for_lower_layers_in_packages_and_commands():
    source = "def f():\n    return import_module('speechframe.widgets.dashboard').show\n"
    target = {"speechframe.widgets.dashboard"}
    assert imported_by_name(source) == target
    assert imported_by_name(source.replace("import_module", "print")) == set()
    found = [refused(name, target) for name in ("speechframe", "speechframe.batch", "speechframe.batch.run")]
    assert found == [set(), target, target]
    faults = {name: refused(name, by_name) for name, (_, by_name) in imports().items()}
    assert {name: names for name, names in faults.items() if names} == {}


def test_no_module_is_in_a_cycle():
    graph = {
        name: (stated | by_name) & MODULES.keys() - {name} for name, (stated, by_name) in imports().items()
    }
    assert sum(map(len, graph.values())) > 2 * len(MODULES), "imports are not found"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1][::-1]))


def test_no_folder_has_more_than_twenty_modules():
    counts = Counter(path.parent for path in MODULES.values() if path.name != "__init__.py")
    assert {str(folder): count for folder, count in counts.items() if count > MOST_MODULES} == {}


def classes_of(tree):
    """Yield the names of a module's classes, also of those in functions, but not of those in classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.stmt | ast.ExceptHandler):
            yield from classes_of(node)


def test_no_two_modules_have_classes_of_one_name():
    homes = {}
    for module, path in MODULES.items():
        for name in classes_of(ast.parse(path.read_text(encoding="utf-8"))):
            homes.setdefault(name, []).append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}
