"""What a release does to a checkout, and that it is built the same twice."""

import hashlib
import os
import shutil
import subprocess
import tomllib

import pytest
import yaml

from scripts.release import (
    FORMS,
    MOST_LINES,
    PROJECTS,
    build_distributions,
    main,
    read_fields,
    refuse_unknown,
    set_version,
    write_changes,
    write_fields,
    write_hashes,
)
from tests.conftest import ROOT

FILLED = {
    "homepage": "https://vgrads.example",
    "repository": "https://code.example/vgrads",
    "issues": "https://code.example/vgrads/issues",
    "documentation": "https://docs.example/vgrads",
    "contact": "vgrads@developers.example",
    "orcid": "https://orcid.org/0000-0000-0000-0000",
    "doi": "10.1234/vgrads",
}


@pytest.fixture
def checkout(tmp_path):
    """The files that a release changes."""
    names = ["CITATION.cff", "CHANGELOG.md", "deploy/conda/recipe.yaml", "scripts/release.toml"]
    for name in (*names, *(f"{project}/pyproject.toml" for project in PROJECTS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs").mkdir()
    (tmp_path / "changelog").mkdir()
    (tmp_path / "changelog" / "one.added.md").write_text("- A.\n- B, [here](docs/b.md).\n")
    (tmp_path / "changelog" / "two.fixed.md").write_text("C\nand D.\n")
    (tmp_path / "changelog" / "1.2.3.summary.md").write_text("For everybody.\n")
    return tmp_path


def fill(checkout, fields):
    lines = [f'{name} = "{text}"\n' for name, text in fields.items()]
    (checkout / "scripts" / "release.toml").write_text("".join(lines))


def test_the_changelog_gets_the_summary_and_a_page_every_change(checkout):
    before = (checkout / "CHANGELOG.md").read_text()
    write_changes(checkout, "1.2.3", "2026-12-01")
    log = (checkout / "CHANGELOG.md").read_text()
    assert "## 1.2.3 (2026-12-01)\n\nFor everybody.\n\n## " in log
    assert log.endswith(before.split("\n\n", 2)[2])
    page = (checkout / "docs" / "changes" / "1.2.3.md").read_text()
    assert "## Added\n\n- A.\n- B, [here](../b.md).\n\n## Fixed\n\n- C and D.\n" in page
    assert list((checkout / "changelog").iterdir()) == []


def test_a_release_without_a_readable_summary_is_refused(checkout):
    summary = checkout / "changelog" / "1.2.3.summary.md"
    summary.write_text("- much\n" * MOST_LINES)
    with pytest.raises(SystemExit, match=f"at most {MOST_LINES}"):
        write_changes(checkout, "1.2.3", "2026-12-01")
    summary.unlink()
    with pytest.raises(SystemExit, match=r"1\.2\.3\.summary\.md is missing"):
        write_changes(checkout, "1.2.3", "2026-12-01")


def test_the_summary_of_this_version_is_readable():
    """Beside the fragments while it is made, and in the changelog once it is released."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    final, _, made = version.partition(".dev")
    if made:
        text = (ROOT / "changelog" / f"{final}.summary.md").read_text()
    else:
        text = (ROOT / "CHANGELOG.md").read_text().partition(f"## {version} (")[2]
        text = text.partition("\n## ")[0]
    assert 20 < text.count("\n") + 2 <= MOST_LINES


def test_every_place_states_the_new_version(checkout):
    set_version(checkout, "1.2.3")
    projects = [
        tomllib.loads((checkout / name / "pyproject.toml").read_text())["project"]
        for name in PROJECTS
    ]
    assert {project["version"] for project in projects} == {"1.2.3"}
    assert all("vgrads==1.2.3" in project["dependencies"] for project in projects[1:])
    assert yaml.safe_load((checkout / "CITATION.cff").read_text())["version"] == "1.2.3"
    recipe = yaml.safe_load((checkout / "deploy" / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == "1.2.3"


def test_nothing_is_published_while_a_field_is_empty(checkout):
    with pytest.raises(SystemExit) as refused:
        main(["1.2.3", "--publish"], checkout)
    assert all(field in str(refused.value) for field in FORMS)
    fill(checkout, FILLED | {"doi": ""})
    with pytest.raises(SystemExit, match="fill in doi before"):
        refuse_unknown(checkout)
    fill(checkout, FILLED)
    refuse_unknown(checkout)


@pytest.mark.parametrize("field", FORMS)
def test_a_field_that_cannot_be_one_is_refused_with_its_name(checkout, field):
    fill(checkout, FILLED | {field: "somewhere"})
    with pytest.raises(SystemExit, match=f"{field} = 'somewhere'"):
        read_fields(checkout)


def test_filled_fields_are_written_where_they_are_looked_for(checkout):
    write_fields(checkout, dict.fromkeys(FILLED, "of the release before"), "2026-11-01")
    write_fields(checkout, FILLED, "2026-12-01")
    for name in PROJECTS:
        project = tomllib.loads((checkout / name / "pyproject.toml").read_text())["project"]
        assert project["urls"] == {
            "Homepage": FILLED["homepage"],
            "Repository": FILLED["repository"],
            "Issues": FILLED["issues"],
            "Documentation": FILLED["documentation"],
        }
        assert project["authors"] == [{"name": "vgrads developers", "email": FILLED["contact"]}]
    cited = yaml.safe_load((checkout / "CITATION.cff").read_text())
    assert cited["url"] == FILLED["homepage"] and cited["repository-code"] == FILLED["repository"]
    assert cited["doi"] == FILLED["doi"] and str(cited["date-released"]) == "2026-12-01"
    (author,) = cited["authors"]
    assert author["email"] == FILLED["contact"] and author["orcid"] == FILLED["orcid"]


def test_empty_fields_leave_no_trace(checkout):
    before = (checkout / "pyproject.toml").read_text()
    write_fields(checkout, read_fields(checkout), "2026-12-01")
    assert (checkout / "pyproject.toml").read_text() == before
    cited = yaml.safe_load((checkout / "CITATION.cff").read_text())
    assert not {"doi", "url", "repository-code"} & cited.keys()


@pytest.mark.long
def test_the_same_commit_gives_the_same_bytes(tmp_path):
    """Wheels and archive, from two clones whose files are of other times and modes."""
    hashes = []
    for name in ("one", "two"):
        subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / name], check=True)
        if name == "two":
            for path in (tmp_path / name).rglob("*.py"):
                path.chmod(0o600)
                os.utime(path, (10**9, 10**9))
        built = build_distributions(tmp_path / name, tmp_path / f"{name}-dist")
        hashes.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in built})
    assert hashes[0] == hashes[1] and len(hashes[0]) == 4
    write_hashes(tmp_path / "one-dist")
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(check, cwd=tmp_path / "one-dist", capture_output=True, check=False)
    assert done.returncode == 0 and done.stdout.count(b": OK") == 4
