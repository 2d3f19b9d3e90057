"""Examples in docstrings are true: each is run as it stands; those that need a service are marked to be skipped."""

import doctest
import importlib
import pkgutil

import pytest

import speechframe

MODULES = [
    "speechframe",
    *(
        module.name
        for module in pkgutil.walk_packages(speechframe.__path__, "speechframe.")
        if not module.name.endswith("__main__")
    ),
]


MODELS = {
    f"speechframe.local.engines.{name}" for name in ("kokoro.speaker", "piper.speaker", "whisper.recogniser")
}
"""Whose examples load a model for seconds: what they show, the engines' own tests prove with one load."""


def room_of(name):
    return "models" if name in MODELS else ".".join(name.split(".")[:2])


@pytest.mark.parametrize(
    "room", [*sorted(set(map(room_of, MODULES)) - {"models"}), pytest.param("models", marks=pytest.mark.slow)]
)
def test_examples_of(room, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in MODULES if room_of(name) == room]:
        found = doctest.testmod(importlib.import_module(name), report=True)
        assert found.failed == 0, f"{found.failed} of {found.attempted} examples of {name}; see the output"


def test_examples_are_found():
    """A finder that looks in the wrong place would find every example true."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [
        example
        for name in MODULES
        for test in finder.find(importlib.import_module(name))
        for example in test.examples
        if not example.options.get(doctest.SKIP)
    ]
    assert len(examples) > 100
