"""Names are the field's terms: no banned words, no class name twice, no term that the glossary
lacks."""

import ast
import re
from collections import defaultdict
from functools import cache

import pytest

from tests.conftest import ROOT
from tests.house.test_house import SOURCES, TRACKED, nodes_of, shown

BANNED = frozenset(
    re.findall(
        r"\w+",
        "told said heard known found kept made seen given asked wanted meant held one beside "
        "besides standing meanwhile heirs luck shelf desk witness stranger farewell bell fate "
        "manner reckon twin gang surer",
    )
)
OTHERS = {
    "FileNotFoundError": "Python",
    "PackageNotFoundError": "Python",
    "connection_made": "asyncio",
    "given": "Hypothesis",
    "one_of": "Hypothesis",
    "get_one": "SQLAlchemy",
    "scalar_one": "SQLAlchemy",
    "one": "SQLAlchemy: session.exec(query).one()",
    "LpSolutionNoSolutionFound": "PuLP",
    "kept": "a kept promise, as in the JSON of the contracts",
    "_kept_share": "the share of kept promises",
    "reckon": "the option --reckon of 0.2",
}
"""Allowed names, and whose they are."""
CLASS_TWICE = {"Executor": "Snakemake looks for this name, also in the stand-in for other versions"}
PROGRAMS = sorted(path for path in TRACKED if path.suffix == ".py" and not path.is_symlink())


def parts(name):
    """The words of an identifier, lower case.

    >>> parts("OneTwo_three")
    ['one', 'two', 'three']
    """
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return [word.lower() for word in words]


def identifiers(nodes):
    """Names that a program defines or uses, each with its line; names of tests are sentences."""
    for node in nodes:
        for field in ("id", "attr", "arg", "name", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str) and not name.startswith("test_"):
                yield getattr(node, "lineno", 0), name


@cache
def is_banned(name):
    return not set(name.split(".")) & OTHERS.keys() and bool(BANNED & set(parts(name)))


def banned_in(nodes):
    """Banned identifiers of a program, each with its line."""
    return [(line, name) for line, name in identifiers(nodes) if is_banned(name)]


def test_no_identifier_has_a_banned_word():
    banned = {shown(path): banned_in(nodes_of(path)) for path in PROGRAMS}
    assert {name: rows for name, rows in banned.items() if rows} == {}


@pytest.mark.parametrize(
    "text", ["told = 1", "x.is_wanted", "class FateOf: pass", "f(seen_s=1)", "f'{held}'"]
)
def test_a_banned_word_is_detected(text):
    assert len(banned_in(ast.walk(ast.parse(text)))) == 1


def test_no_class_name_occurs_twice_in_the_product():
    places = defaultdict(list)
    for path in SOURCES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(shown(path))
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert twice.keys() == CLASS_TWICE.keys(), twice


def glossary():
    rows = re.findall(r"^\| ([^|]+?) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    return {re.sub(r" \(.*", "", row).lower() for row in rows[2:]}


def test_terms_that_the_documents_link_to_the_glossary_exist():
    """As ``[backfilling](glossary.md)``: the glossary has the term, in the singular or as it is."""
    terms = glossary()
    assert len(terms) > 50
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for term in re.findall(r"\[([^\]/]+)\]\((?:docs/)?glossary\.md\)", page.read_text()):
            name = term.lower()
            assert {name, name.removesuffix("s")} & terms, f"{page.name}: {term}"


def test_every_term_of_the_glossary_is_used():
    """A term that no page and no module uses is not a term of this project."""
    pages = [path.read_text().lower() for path in (ROOT / "docs").glob("*.md")]
    pages.append((ROOT / "README.md").read_text().lower())
    own = (ROOT / "docs" / "glossary.md").read_text().lower()
    code = " ".join(path.read_text().lower() for path in SOURCES).replace("_", " ")
    text = " ".join(page for page in pages if page != own) + code
    missing = [term for term in glossary() if not any(t in text for t in term.split(", "))]
    assert missing == []
