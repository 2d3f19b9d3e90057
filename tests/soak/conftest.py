"""Makes the tools of this folder importable for its tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

# Their checks say what they found, as those of a test do.
pytest.register_assert_rewrite("soak_checks", "soak_lab")
