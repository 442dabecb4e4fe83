"""What the documentation shows is what the program takes."""

import pydoc
import re

import pytest
import yaml

from tests.conftest import ROOT
from vgrads.kernel.documents import validate
from vgrads.vgrid.catalog import load_catalog
from vgrads.vgrid.request import parse_request_document
from vgrads.vgrid.request_text import parse_request
from vgrads.workflows.sets import SetDocument

SITES = """
[[site]]
name = "kth"
kind = "batch"
procs = 100
cores_per_node = 1
speed = 1.0
slot_up = 0.98
driver = "simulated"
[[site.queue]]
name = "default"
history = "KTH-SP2-1996-2.1-cln.swf.gz"
log_queue = 1
max_procs = 100
max_walltime = "24h"
[[site]]
name = "ec2"
kind = "cloud"
procs = 128
cores_per_node = 8
node_type = "c1.xlarge"
price_usd_per_hour = 0.68
billing = "1h"
boot = "4m"
[[link]]
between = ["kth", "ec2"]
bandwidth_mib_s = 10.0
latency_s = 0.05
"""


def test_the_example_set_is_a_set():
    text = (ROOT / "docs" / "sets.md").read_text()
    example = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1]
    document = validate(SetDocument, yaml.safe_load(example), "docs/sets.md")
    assert [entry.count for entry in document.workflows] == [8, 1, 1, 2, 1]


def sets_of(page):
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"```yaml\n(name: .*?)```", text, re.DOTALL)


def test_every_set_about_tasks_can_be_requested(vgrads, write):
    machine = '[[site]]\nname = "m"\nkind = "dedicated"\nprocs = 16\nresources = {gpu = 4}\n'
    examples = sets_of("tasks.md")
    assert len(examples) == 4
    for number, example in enumerate(examples):
        answer = vgrads(
            "plan", write(f"{number}.yaml", example), "--sites", write("m.toml", machine)
        )
        assert answer.code == 0, answer.err


def test_the_set_that_says_how_tasks_run_runs(vgrads, write, tmp_path):
    here = '[[site]]\nname = "here"\nkind = "local"\nprocs = 2\n'
    answer = vgrads(
        "run",
        write("set.yaml", sets_of("tasks.md")[0]),
        "--sites",
        write("sites.toml", here),
        "--out",
        tmp_path / "out",
    )
    assert answer.code == 0, answer.err
    for workflow in ("season-1", "season-2"):
        assert (tmp_path / "out" / workflow / "results" / "copy.txt").read_text() == "2026\n"
        assert (tmp_path / "out" / workflow / "tasks" / "flaky.0.again1").exists()


def test_the_sites_of_the_contract_are_sites(write):
    catalog = load_catalog(write("sites.toml", SITES))
    assert catalog.site("ec2").boot_s == 240
    assert catalog.site("kth").queues[0].max_walltime_s == 86400


def test_the_real_sites_of_the_documentation_are_sites(write):
    text = (ROOT / "docs" / "drivers.md").read_text()
    catalog = load_catalog(write("sites.toml", re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1]))
    assert catalog.site("cluster").access.host == "login.cluster.example"
    assert catalog.site("cloud").access.spend_limit_usd == 40


def test_links_between_documents_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


TOP_PAGES = [
    ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT")
]
RESULTS = sorted((ROOT / "studies" / "results").glob("*.md"))
PAGES = [*TOP_PAGES, *sorted((ROOT / "docs").glob("*.md")), *RESULTS]
TOP = "|".join(p.name for p in sorted(ROOT.iterdir()) if p.is_dir() and p.name[0] not in "._")
BUILT = ("docs/site", "docs/api", "dist/")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_path_that_a_document_names_exists(page):
    """Files and folders of this repository; decisions are dated, and exempt."""
    result = re.findall(rf"(?<![\w/.-])(?:{TOP})/[\w./-]*", page.read_text())
    planned = re.findall(r"\*`(\w+/)`\*", page.read_text())  # rooms that are decided, not built
    for name in {n.rstrip(".") for n in result} - set(planned):
        assert name.startswith(BUILT) or (ROOT / name).exists(), f"{page.name} names {name}"
    for name in planned:
        assert not (ROOT / name).exists(), f"{page.name}: {name} is built by now"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_that_a_document_names_exists(page):
    """As ``vgrads.planner.make.make_plan``: a module, or something in one."""
    for name in re.findall(r"`(vgrads(?:\.\w+)+)`", page.read_text()):
        if name.endswith((".md", ".svg", ".html", ".swf", ".toml", ".yaml")):
            continue
        assert pydoc.locate(name) is not None, f"{page.name} names {name}"


def test_every_command_of_the_readme_exists(vgrads):
    names = set(re.findall(r"`vgrads (\w+)", (ROOT / "README.md").read_text()))
    assert names >= {"bound", "plan", "run", "serve"}
    for name in names:
        assert vgrads(name, "--help").code == 0


def test_the_site_example_is_a_site_file(tmp_path):
    text = (ROOT / "docs" / "sites.md").read_text()
    (tmp_path / "sites.toml").write_text(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1])
    catalog = load_catalog(tmp_path / "sites.toml")
    assert [node.name for node in catalog.site("ec2").nodes] == ["c1.xlarge"]


def test_both_examples_of_a_request_say_the_same():
    text = (ROOT / "docs" / "requests.md").read_text()
    first, second = re.findall(r"```(?:yaml)?\n(.*?)```", text, re.DOTALL)
    assert parse_request(first, "docs") == parse_request_document(yaml.safe_load(second), "docs")


def test_the_backtest_document_is_its_template_with_tables():
    """What is written by hand in either of both would be lost when the document is made again."""
    template = (ROOT / "scripts" / "backtest_doc.md").read_text()
    text = re.split(r"<!-- [A-Z]+ -->\n", template)
    assert len(text) > 5
    pattern = r"(?:\|.*\n)+".join(re.escape(part) for part in text)
    assert re.fullmatch(pattern, (ROOT / "studies" / "results" / "backtest.md").read_text())
