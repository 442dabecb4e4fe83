"""A count in a text agrees with its noun: "1 host", "2 hosts" (``kernel.units.format_count``)."""

import ast
import re

import pytest

from tests.conftest import ROOT
from tests.house.test_house import SOURCES, nodes_of, shown

_NOUNS = (
    "agents|attempts|bags|blocks|bytes|cases|cells|clusters|copies|cores|days|entries|files"
    "|forecasts|hosts|hours|jobs|kinds|lines|loads|minutes|models|nodes|observations|parts|pieces|plans"
    "|placements|processors|queues|records|replicas|requests|results|retries|rows|samples|seconds"
    "|sets|sites|slots|statements|steps|tasks|threads|times|values|waits|workers|workflows"
)
_PLURAL = re.compile(rf"(?: (?!and |or |runs |shares |starts )[a-z]+)? (?:{_NOUNS})\b")
_ELSEWHERE = [ROOT / "plugins", ROOT / "vgrads" / "agent", ROOT / "studies"]
"""The first two are used without the rest of vgrads; studies count the jobs of whole logs."""
_EXCEPTIONS = (
    "answers.py: name bags",  # the name of a log
    "scheduling.py: replicas times",  # two or more
    "set_bags.py: after - first tasks",  # the name of a kind, under which run times are stored
    "shapes.py: self.cpus cores",  # the name of a bag, which may exist already
    "request_text.py: count nodes [",  # the form in which requests are written
    "gridengine.py: round(in_s) seconds' +",  # the command date
    "sbatch.py: request.cpus processors on nodes ",  # as Slurm prints it
    "plan.py: used processors at ",  # more than a slot has
    "documents.py: ' or '.join(fitting) sites",
)


def bare_counts(nodes):
    """Counts that are followed by a plural, each with its line. Numbers with digits behind the
    point, as days, are no counts, and limits are more than
    1."""
    for node in nodes:
        if not isinstance(node, ast.JoinedStr):
            continue
        for part, text in zip(node.values, node.values[1:], strict=False):
            if not isinstance(part, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            if _PLURAL.match(text.value) and not _agrees(part):
                yield node.lineno, ast.unparse(part.value) + text.value


def _agrees(part):
    called = getattr(getattr(part.value, "func", None), "id", "")
    digits = part.format_spec is not None and "." in ast.unparse(part.format_spec)
    limit = ast.unparse(part.value)
    return called.startswith("format_") or digits or limit.isupper() or limit == "most"


def test_counts_agree_with_their_nouns():
    sources = [path for path in SOURCES if not any(p in path.parents for p in _ELSEWHERE)]
    assert len(sources) > 400
    counts = [(path, *row) for path in sources for row in bare_counts(nodes_of(path))]
    bare = [
        f"{shown(path)}:{line}: {text}"
        for path, line, text in counts
        if not f"{path.name}: {text}".startswith(_EXCEPTIONS)
    ]
    assert not bare, "\n".join(bare)


@pytest.mark.parametrize(
    "text", ["{n} hosts", "{n:,} other jobs wait", "{a.b} tasks", "{n:g} jobs"]
)
def test_a_bare_count_is_detected(text):
    assert len(list(bare_counts(ast.walk(ast.parse(f"f'{text}'"))))) == 1


@pytest.mark.parametrize("text", ["{format_count(n, x)} tasks", "{MOST} tasks", "{n:.1f} days"])
def test_other_texts_are_no_bare_counts(text):
    assert not list(bare_counts(ast.walk(ast.parse(f"f'{text}'"))))
