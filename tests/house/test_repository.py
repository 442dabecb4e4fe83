"""What a stranger finds beside the code: issue forms, hooks, licences, how to report."""

import re
import subprocess
import sys

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT
from tests.house.test_house import PROJECT

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[0-9]*.yml"))
KINDS = {"markdown", "input", "textarea", "dropdown"}


@pytest.mark.parametrize("form", FORMS, ids=lambda p: p.stem)
def test_an_issue_form_is_one(form):
    """The fields that hosting sites know, each asked once."""
    document = yaml.safe_load(form.read_text())
    assert document.keys() == {"name", "description", "labels", "body"}
    assert {field["type"] for field in document["body"]} <= KINDS
    asked = [field for field in document["body"] if field["type"] != "markdown"]
    ids = [field["id"] for field in asked]
    assert len(set(ids)) == len(ids)
    for field in asked:
        assert field["attributes"]["label"]
        assert ("options" in field["attributes"]) == (field["type"] == "dropdown")
    assert any(field.get("validations", {}).get("required") for field in asked)


def test_issue_forms_ask_for_what_is_needed_to_repeat_it(vgrads):
    wrong, failure, wish = (form.read_text() for form in FORMS)
    assert all("vgrads --version" in text for text in (wrong, failure, wish))
    for text in (wrong, failure):
        for command in re.findall(r"`vgrads ([a-z]+(?: check)?)\b", text):
            assert vgrads(*command.split(), "--help").code == 0, command
    assert "`vgrads sites check" in failure and "first line of the error" in failure


def test_hooks_before_a_commit_are_what_make_lint_calls():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    lint = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"  # nothing is fetched from elsewhere
    assert [hook["entry"] for hook in repository["hooks"]] == lint
    assert all(hook["language"] == "system" for hook in repository["hooks"])


def test_the_licence_of_each_dependency_is_listed():
    rows = dict(
        re.findall(
            r"^\| (\S+) \| (.+) \|$", (ROOT / "LICENSES-dependencies.md").read_text(), re.MULTILINE
        )
    )
    project = PROJECT["project"]
    texts = [
        *project["dependencies"],
        *(text for extra in project["optional-dependencies"].values() for text in extra),
    ]
    names = {canonicalize_name(Requirement(text).name) for text in texts}
    assert names - rows.keys() == {"vgrads", "vgrads-studies"}
    assert not [name for name, licence in rows.items() if licence == "not stated"]


def test_the_list_of_licences_is_that_of_the_pinned_packages():
    """Made in this environment, which ``constraints.txt`` describes."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("other Pythons need other packages")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "licences.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_pages_for_strangers_invent_no_address():
    """Nobody here knows where the project will be hosted, or who answers there."""
    pages = [ROOT / "SECURITY.md", ROOT / "CODE_OF_CONDUCT.md", *(ROOT / ".github").rglob("*.*")]
    for page in pages:
        if page.is_file():
            assert not re.search(r"https?://|\S@\S", page.read_text()), page.name


TOOLS = [
    *("Snakemake", "Nextflow", "Parsl", "Dask", "HyperQueue"),
    *("Cylc", "Airflow", "ecFlow", "SkyPilot", "Torc"),
]


def test_each_tool_is_compared_by_its_own_pages_and_to_both_sides():
    text = (ROOT / "docs" / "compare.md").read_text()
    sections = dict(re.findall(r"^## (\S+)\n\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == TOOLS
    for name, section in sections.items():
        assert f"| [{name}](#{name.lower()}) |" in text
        assert re.search(r"\]\(https://", section), f"{name}: no source"
        assert "**Better there**" in section and "**Better here**" in section


def test_the_paper_cites_what_it_lists_and_shows_pictures_with_their_commands():
    paper = (ROOT / "paper" / "paper.md").read_text()
    head, body = paper.split("---\n", 2)[1:]
    assert {"title", "tags", "authors", "date", "bibliography"} <= yaml.safe_load(head).keys()
    keys = set(
        re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text(), re.MULTILINE)
    )
    assert set(re.findall(r"@(\w+)", body)) == keys
    assert 900 <= len(body.split()) <= 1_400
    pictures = re.findall(r"^!\[(.*)\]\((\S+)\)$", body, re.MULTILINE)
    assert len(pictures) == 2
    for caption, file in pictures:
        assert (ROOT / "paper" / file).is_file()
        assert f"docs/{file.rpartition('/')[2]}`" in caption  # the command that makes it


def test_the_citation_has_all_that_can_be_known_here():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = PROJECT["project"]
    assert cited["version"] == project["version"] and cited["license"] == project["license"]
    assert cited["keywords"] == project["keywords"]
    assert {"cff-version", "message", "title", "type", "authors", "abstract"} <= cited.keys()
