"""Recipes of other installers say what pyproject.toml says."""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

from tests.conftest import ROOT
from tests.house.test_house import PROJECT

PYTHON = "3.14"
"""The newest that the recipe permits: its requirements have no markers."""
NAMES = {"msgpack": "msgpack-python", "prometheus-client": "prometheus_client"}
"""Packages that conda-forge calls otherwise."""
CONTAINER = ROOT / "deploy" / "Containerfile"


def recipe():
    return yaml.safe_load((ROOT / "deploy" / "conda" / "recipe.yaml").read_text())


def test_the_conda_recipe_has_the_fields_of_the_project():
    document, project = recipe(), PROJECT["project"]
    assert document["context"]["version"] == project["version"]
    assert project["requires-python"] == f">={document['context']['python_min']}"
    assert document["package"]["name"] == project["name"]
    about = document["about"]
    assert (about["license"], about["summary"]) == (project["license"], project["description"])
    assert [about["license_file"]] == project["license-files"]
    (script,) = project["scripts"].items()
    assert document["build"]["python"]["entry_points"] == [" = ".join(script)]


def test_the_conda_recipe_has_the_dependencies_of_the_project():
    bounds = {}
    for text in PROJECT["project"]["dependencies"]:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"python_version": PYTHON}):
            name = NAMES.get(requirement.name, requirement.name)
            bounds[name] = set(str(requirement.specifier).split(","))
    rows = [row.split(" ", 1) for row in recipe()["requirements"]["run"] if " " in row]
    stated = {name: set(bound.split(",")) for name, bound in rows if name != "python"}
    assert stated == bounds
    (python,) = (bound for name, bound in rows if name == "python")
    assert python.endswith(",<3.15")


def instructions():
    """Those of the Containerfile, continued lines joined."""
    text = CONTAINER.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def test_the_image_is_pinned_and_does_not_run_as_root():
    assert instructions()[0][0] == "FROM"
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+-slim", instructions()[0][1])
    users = [argument for word, argument in instructions() if word == "USER"]
    assert users and int(users[-1]) > 0  # a number is known outside the image too
    assert f"--uid {users[-1]} " in CONTAINER.read_text()


def test_the_image_has_the_pinned_packages():
    (install,) = (argument for word, argument in instructions() if "pip install" in argument)
    assert " -c /src/constraints.txt " in install and " --no-cache-dir " in install
    (extras,) = re.findall(r'"/src\[([a-z,0-9]+)\]"', install)
    assert set(extras.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()


def test_the_site_of_the_documents_is_built_as_make_docs_does():
    document = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())
    assert document["version"] == 2
    assert (ROOT / document["sphinx"]["configuration"]).is_file()
    assert document["sphinx"]["fail_on_warning"]  # sphinx-build -W
    (install,) = document["build"]["jobs"]["install"]
    assert "-c constraints.txt" in install and '".[docs]"' in install


@pytest.mark.parametrize("folder", ["plugins/snakemake-executor-plugin-vgrads", "studies"])
def test_the_other_distributions_have_the_metadata_of_the_first(folder):
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    ours = PROJECT["project"]
    for field in ("version", "license", "requires-python", "authors"):
        assert project[field] == ours[field], field
    assert (ROOT / folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert len((ROOT / folder / project["readme"]).read_text().splitlines()) > 3


def test_the_plugin_is_found_as_one_of_snakemakes():
    """Its catalogue goes by the name and these keywords."""
    file = ROOT / "plugins" / "snakemake-executor-plugin-vgrads" / "pyproject.toml"
    project = tomllib.loads(file.read_text())["project"]
    assert project["name"].startswith("snakemake-executor-plugin-")
    assert {"snakemake", "plugin", "executor"} <= set(project["keywords"])
    readme = file.with_name("README.md").read_text()
    source = "".join(path.read_text() for path in file.parent.rglob("*.py"))
    for option in re.findall(r"--vgrads-([a-z-]+)", readme):
        assert option.replace("-", "_") in source, option
