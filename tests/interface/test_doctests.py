"""The examples in docstrings: those of the public names, from any folder, and all others."""

import doctest
import importlib
import inspect
import os
from pathlib import Path

import pytest

import vgrads as package

ROOT = Path(package.__file__).parent
FUNCTIONS = ("read_set", "plan", "run", "bound", "probability", "offers", "backtest", "Bag")


def modules():
    """The names of all modules that have an example."""
    for folder, _, names in os.walk(ROOT, followlinks=True):
        for name in names:
            path = Path(folder, name)
            if path.suffix == ".py" and ">>> " in path.read_text():
                yield ".".join(("vgrads", *path.relative_to(ROOT).with_suffix("").parts))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_has_an_example(name):
    (test,) = doctest.DocTestFinder(recurse=False).find(inspect.unwrap(getattr(package, name)))
    assert test.examples


@pytest.mark.parametrize("name", sorted(modules()))
def test_examples_hold(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tests = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    assert sum(len(test.examples) for test in tests)
    for test in tests:
        assert doctest.DocTestRunner().run(test).failed == 0
