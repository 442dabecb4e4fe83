"""The examples in the docstrings of the public names, from any folder."""

import doctest
import inspect

import pytest

import vgrads as package
from vgrads.interface import arguments

FUNCTIONS = ("read_set", "plan", "run", "bound", "probability", "offers", "backtest", "Bag")


def examples(value, name):
    """The doctests of a function or class, without those of its decorators."""
    finder = doctest.DocTestFinder(recurse=False)
    return finder.find(inspect.unwrap(value), name, globs=dict(vars(arguments)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_hold(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (test,) = examples(getattr(package, name), name)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def test_examples_of_arguments_hold():
    (test,) = examples(arguments.seconds_of, "seconds_of")
    assert doctest.DocTestRunner().run(test).failed == 0
