"""Begin a driver, a workflow format, an operation or a page: files with what every one of them has,
and tests that fail until it works.

    python scripts/new.py driver lsf
    python scripts/new.py format galaxy
    python scripts/new.py operation quota
    python scripts/new.py page calendar
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
Files = Mapping[str, str]
_FUTURE = "from __future__ import annotations\n"


def make_class_name(name: str) -> str:
    """Return the name of a class.

    >>> make_class_name("load_balance")
    'LoadBalance'
    """
    return "".join(word.capitalize() for word in name.split("_"))


def draft_driver(name: str) -> tuple[Files, str]:
    """A dialect of a batch system, with every method that the protocol asks for."""
    source = (ROOT / "drivers" / "dialect.py").read_text()
    lines = source.splitlines()
    (protocol,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == "Dialect"
    )
    methods = []
    for node in protocol.body:
        if isinstance(node, ast.FunctionDef) and len(node.body) == 1:  # nothing but its docstring
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
            text = "\n".join(lines[first : node.end_lineno])
            methods.append(f"{text}\n        raise NotImplementedError\n")
    kind = make_class_name(name)
    names = {node.id for node in ast.walk(protocol) if isinstance(node, ast.Name)}
    own = sorted(names & {"JobReport", "JobSubmission"})
    api = sorted(
        names & {"QueueLimits", "QueuedJob", "SiteAccess", "SiteFacts", "SlotSpec", "Survey"}
    )
    module = (
        f'"""The batch system {name}: its versions, its commands, and a link to its manual."""\n\n'
        f"{_FUTURE}\nfrom collections.abc import Sequence\n\n"
        f"from vgrads.drivers.api import {', '.join(api)}\n"
        f"from vgrads.drivers.dialect import Dialect, {', '.join(own)}\n"
        "from vgrads.drivers.pilot import Launch\n\n\n"
        f'class {kind}(Dialect):\n    """Dialect of {name}."""\n\n' + "\n".join(methods)
    )
    test = (
        f'"""Requests to {name}, and texts that a real one printed."""\n\n'
        "from tests.drivers.test_driver_text import ACCESS, ORDER\n"
        f"from vgrads.drivers.{name} import {kind}\n\n\n"
        f'def test_it_gets_these_requests():\n    assert {kind}().submit(ORDER, ACCESS) == ""\n'
    )
    then = (
        "name it in vgrads/api/wiring.py, vgrid/documents.py and drivers/quality.py; hold it "
        "against drivers/conformance.py as tests/drivers/test_conformance.py does; docs/drivers.md"
    )
    return {f"drivers/{name}.py": module, f"tests/drivers/test_{name}.py": test}, then


def draft_format(name: str) -> tuple[Files, str]:
    """A reader of workflow files."""
    module = (
        f'"""Workflow files of {name}: what each part means here, and a link to the manual."""\n\n'
        f"{_FUTURE}\nfrom vgrads.workflows.dag import Workflow\n"
        "from vgrads.workflows.formats.reading import Reading\n"
        "from vgrads.workflows.runtimes import Runtimes\n\n\n"
        f"def read_{name}(text: str, runtimes: Runtimes, reading: Reading) -> Workflow:\n"
        f'    """Read the workflow of a file of {name}; InputError names the wrong line. What is\n'
        '    not read is counted in ``reading``."""\n'
        "    raise NotImplementedError\n"
    )
    test = (
        f'"""Workflow files of {name}."""\n\nimport pytest\n\n'
        "from vgrads.kernel.errors import InputError\n"
        "from vgrads.workflows.formats.load import load_workflow\n\n"
        'TEXT = ""\n\n\n'
        "def test_tasks_and_edges_are_read(write):\n"
        f'    flow = load_workflow(write("a.{name}", TEXT))\n'
        "    parents = {task.id: set(task.parents) for task in flow.tasks.values()}\n"
        '    assert parents == {"first": set(), "second": {"first"}}\n\n\n'
        "def test_a_wrong_line_is_named(write):\n"
        f'    with pytest.raises(InputError, match=r"a\\.{name}:1"):\n'
        f'        load_workflow(write("a.{name}", "?"))\n'
    )
    then = (
        "name it in vgrads/workflows/formats/load.py (how it is recognised, who reads it); "
        "docs/formats.md"
    )
    return {
        f"vgrads/workflows/formats/{name}.py": module,
        f"tests/workflows/test_import_{name}.py": test,
    }, then


def draft_operation(name: str) -> tuple[Files, str]:
    """A user action: its request, from which commands, functions and the reference are made."""
    kind = make_class_name(name)
    module = (
        f'"""The action {name}: what it asks, and what it answers. Light: commands are generated\n'
        f'from it."""\n\n{_FUTURE}\n'
        "from dataclasses import dataclass\nfrom typing import Annotated\n\n"
        "from vgrads.operations.fields import About, OnCommandLine, Request\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        f'class {kind}Request(Request):\n    """What the action does, in a sentence."""\n\n'
        '    site: Annotated[str, About("A site."), OnCommandLine(argument=True, metavar="SITE")]\n'
        "\n\n"
        f"def answer_{name}(request: {kind}Request) -> dict[str, object]:\n"
        '    """Return the answer as JSON; InputError for a site that nobody knows."""\n'
        "    raise NotImplementedError\n"
    )
    test = (
        f'"""The action {name}: the same in every interface."""\n\n\n'
        "def test_the_command_answers(vgrads):\n"
        f'    answer = vgrads("{name.replace("_", "-")}", "kittyhawk", "--json")\n'
        "    assert answer.code == 0, answer.err\n"
        '    assert answer.json["site"] == "kittyhawk"\n'
    )
    then = (
        "list its command in scripts/interfaces/registry.py and run make interfaces; its typed "
        "answer in vgrads/operations/answers/, its route in vgrads/portal/web/"
    )
    return {
        f"vgrads/operations/{name}.py": module,
        f"tests/interface/test_{name}.py": test,
    }, then


def draft_page(name: str) -> tuple[Files, str]:
    """A page of the portal."""
    title = name.replace("_", " ").capitalize()
    module = (
        f'"""The page /{name}: which question it answers first."""\n\n{_FUTURE}\n'
        "from fastapi import FastAPI, Request\nfrom fastapi.responses import HTMLResponse\n\n"
        "from vgrads.portal.web.page_context import page_of\n"
        "from vgrads.portal.web.service import Service\n\n\n"
        f"def add_{name}_page(app: FastAPI, service: Service) -> None:\n"
        '    """Add the page."""\n\n'
        f'    @app.get("/{name}", response_class=HTMLResponse, include_in_schema=False)\n'
        f"    def {name}(request: Request) -> HTMLResponse:\n"
        '        sentence = ""  # what a reader wants to know, in one sentence\n'
        f'        return page_of(service, request, "{name}.html", sentence=sentence)\n'
    )
    template = (
        f'{{% extends "base.html" %}}{{% block title %}}{title}{{% endblock %}}\n'
        f'{{% block main %}}<main id="main" data-page="{name}"><h1>{title}</h1>\n'
        '<p class="sentence">{{ sentence }}</p>\n</main>{% endblock %}\n'
    )
    test = (
        f'"""The page /{name}."""\n\nimport re\n\n'
        "from fastapi.testclient import TestClient\n\n"
        "from tests.portal.pages.test_page_states import PAGE\n"
        "from vgrads.api.config import embedded_data\n"
        "from vgrads.portal.web.app import make_app\n"
        "from vgrads.vgrid.catalog import load_catalog\n\n\n"
        "def test_the_answer_comes_first(store):\n"
        '    app = make_app(store, load_catalog(embedded_data() / "sites.toml"))\n'
        f'    answer = TestClient(app, headers=PAGE).get("/{name}")\n'
        "    assert answer.status_code == 200\n"
        """    assert re.search(r'<p class="sentence">\\w', answer.text)\n"""
    )
    then = (
        "call it in vgrads/portal/web/app.py; list the route in tests/security/test_borders.py; "
        "show it in every state in tests/portal/pages/pictures.py (VIEWS), then make pictures"
    )
    return {
        f"vgrads/portal/web/{name}_page.py": module,
        f"vgrads/portal/web/templates/{name}.html": template,
        f"tests/portal/pages/test_{name}.py": test,
    }, then


KINDS: Mapping[str, Callable[[str], tuple[Files, str]]] = {
    "driver": draft_driver,
    "format": draft_format,
    "operation": draft_operation,
    "page": draft_page,
}


def write(root: Path, files: Files) -> None:
    """Write files; SystemExit, and nothing written, where one is there already."""
    for name in files:
        if (root / name).exists():
            raise SystemExit(f"{name}: is there already")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def main(arguments: list[str] | None = None) -> None:
    """Write the files of the command line, and say what is left to do."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("name", help="lower case, words joined by _")
    parser.add_argument("--root", type=Path, default=ROOT, help="default: this checkout")
    options = parser.parse_args(arguments)
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", options.name):
        parser.error(f"'{options.name}' is no name of a module: lower case, words joined by _")
    files, then = KINDS[options.kind](options.name)
    write(options.root, files)
    print(*files, sep="\n")
    print(f"Then: {then}; a line in changelog/. docs/patterns.md says how a change travels.")


if __name__ == "__main__":
    main()
