"""Write the generated files, or with ``--check`` name those that are stale and exit with 1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.interfaces.client import render_client
from scripts.interfaces.commands import render_commands
from scripts.interfaces.functions import render_functions
from scripts.interfaces.reference import render_reference
from scripts.interfaces.registry import COMMAND_MODULES, FUNCTION_MODULES

ROOT = Path(__file__).parents[2]


def render_all() -> dict[Path, str]:
    """Return the text of each generated file."""
    texts = {
        ROOT / f"vgrads/portal/cli/generated/{name}.py": render_commands(commands)
        for name, commands in COMMAND_MODULES.items()
    }
    texts |= {
        ROOT / f"vgrads/interface/generated/{name}.py": render_functions(functions)
        for name, functions in FUNCTION_MODULES.items()
    }
    texts[ROOT / "vgrads/portal/client_generated.py"] = render_client()
    formatted = {path: _format(path, text) for path, text in texts.items()}
    return formatted | {ROOT / "docs/reference.md": render_reference()}


def _format(path: Path, text: str) -> str:
    """Return Python text as the linter wants it, with sorted imports."""
    ruff, name = str(Path(sys.executable).with_name("ruff")), f"--stdin-filename={path}"
    text = _pipe([ruff, "check", "--quiet", "--select", "I", "--fix", name, "-"], text)
    return _pipe([ruff, "format", "--quiet", name, "-"], text)


def _pipe(command: list[str], text: str) -> str:
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(done.stderr or done.stdout)
    return done.stdout


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    texts = render_all()
    if "--check" not in arguments:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return 0
    stale = [p for p, text in texts.items() if not p.is_file() or p.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is stale: make interfaces", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
