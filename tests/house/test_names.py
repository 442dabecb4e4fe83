"""Names are the field's terms: no class name twice, no term that the glossary lacks."""

import ast
import re
from collections import defaultdict

from tests.conftest import ROOT
from tests.house.test_house import SOURCES, nodes_of, shown

CLASS_TWICE = {"Executor": "Snakemake looks for this name, also in the stand-in for other versions"}


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
