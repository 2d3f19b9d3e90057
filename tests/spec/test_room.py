"""The room itself: it imports nothing of ours and nothing heavy."""

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import speechframe.spec

ROOM = Path(speechframe.spec.__file__).parent
MODULES = sorted(module.name for module in pkgutil.walk_packages([str(ROOM)], "speechframe.spec."))


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_only_pydantic_and_langcodes_from_outside():
    roots = {name.split(".")[0] for path in ROOM.rglob("*.py") for name in imports_of(path)}
    assert roots - set(sys.stdlib_module_names) == {"speechframe", "pydantic", "pydantic_core", "langcodes"}


def test_everything_is_importable_without_the_heavy_ones():
    code = (
        "import sys\n"
        "for name in ('pandas', 'pyarrow', 'aiohttp', 'numpy', 'soundfile'): sys.modules[name] = None\n"
        f"for name in {MODULES!r}: __import__(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0
