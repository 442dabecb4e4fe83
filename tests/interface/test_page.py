"""docs/python.md and docs/python.ipynb: their code runs, and the names in them exist."""

import json
import re
import shutil

import pytest

from tests.conftest import ROOT
from tests.portal.serving import serving

PAGE, NOTEBOOK = ROOT / "docs" / "python.md", ROOT / "docs" / "python.ipynb"
MOST_BYTES = 400_000


def blocks():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "data" / "histories" / "mercury.swf.gz", "jobs.swf.gz")
    return tmp_path


@pytest.fixture
def service(tmp_path):
    with serving(tmp_path) as served:
        yield served


@pytest.mark.more
def test_the_code_of_the_page_runs_from_a_log_to_a_kept_promise(workdir, service):
    names = {}
    for block in blocks():
        exec(compile(block.replace("http://127.0.0.1:8080", service.url), "page", "exec"), names)
    assert names["run"].verdict == "kept" and names["result"].done == 100
    assert (workdir / "plan.html").is_file()


def test_the_table_of_the_page_names_fields_that_exist():
    import vgrads  # noqa: PLC0415

    rows = re.findall(r"^\| `[\w.]+` \| `(\w+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 8
    for result, fields in rows:
        kind = getattr(vgrads, result)
        for field in re.findall(r"`(\w+)(?:\(\))?`", fields):
            assert field in kind.__dataclass_fields__ or hasattr(kind, field), (result, field)


def test_the_notebook_is_executed_small_and_of_no_machine():
    text = NOTEBOOK.read_text()
    assert len(text) < MOST_BYTES
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert {"text/html", "image/png", "text/plain"} <= kinds
    assert not re.search(r"/(work|root|home|tmp|Users)/", text)
    assert "'kept'" in text
