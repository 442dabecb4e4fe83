"""Write LICENSES-dependencies.md: the licence of each package that vgrads requires.

    python scripts/licences.py [--check]

It reads what the packages installed beside it state about themselves: ``make licences`` has the
environment of ``constraints.txt``. With ``--check`` nothing is written, and the exit status is 1
where the file is not what would be written.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
FILE = ROOT / "LICENSES-dependencies.md"
_LONGEST = 60  # more is the text of a licence, not its name
_NAMELESS = {"", "license", "dual license", "unknown"}
_OURS = {"vgrads", "vgrads-studies"}
_TOOLS = {"dev", "docs"}  # extras whose packages run here only
_HEAD = """\
# Licences of dependencies

Made by `make licences` from what the packages state about themselves, in the versions of
`constraints.txt`. vgrads itself: [Apache-2.0](LICENSE). None of these packages is part of what
vgrads distributes: an installer fetches them.
"""


def find_required(requirements: Iterable[str]) -> set[str]:
    """Return the names of the packages that requirements need in this environment, and in turn
    what those need. Packages that are not installed are left out with all that they need."""
    result: set[str] = set()
    asked: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in asked:
                continue
            asked.add((name, extra))
            try:
                texts = metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                continue
            result.add(name)
            more = [Requirement(text) for text in texts]
            waiting += [r for r in more if r.marker is None or r.marker.evaluate({"extra": extra})]
    return result - _OURS


def find_licence(name: str) -> str:
    """Return the licence that a package states: as an expression, a short name, a class of the
    registry, or the first line of its file."""
    package = metadata.distribution(name)
    fields = package.metadata
    classes = [
        text.rpartition(" :: ")[2]
        for text in fields.get_all("Classifier") or []
        if text.startswith("License :: ") and not text.endswith("OSI Approved")
    ]
    stated = (fields.get("License-Expression") or fields.get("License") or "").strip()
    short = stated if len(stated) <= _LONGEST and "\n" not in stated else ""
    if short.lower() not in _NAMELESS:
        return short
    return " or ".join(classes) or _read_first_line(package) or "not stated"


def _read_first_line(package: metadata.Distribution) -> str:
    files = [file for file in package.files or () if file.name.upper().startswith("LICEN")]
    lines = [line.strip() for file in files for line in file.read_text().splitlines()]
    return next((line for line in lines if line), "")


def render(root: Path = ROOT) -> str:
    """Return the text of the file."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    seen: set[str] = set()
    parts = [_HEAD]

    def add(title: str, requirements: list[str]) -> None:
        names = sorted(find_required(requirements) - seen)
        seen.update(names)
        if names:
            rows = [f"| {name} | {find_licence(name)} |" for name in names]
            parts.append(
                "\n".join([f"## {title}\n", "| package | licence |", "| --- | --- |", *rows])
            )

    add("Every installation", project["dependencies"])
    extras = project["optional-dependencies"]
    for name in sorted(extras.keys() - _TOOLS):
        add(f"Extra `{name}`", extras[name])
    tools = [text for name in sorted(_TOOLS) for text in extras[name]]
    add("Tests, documents and releases only", tools)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main() -> None:
    """Write the file, or compare it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    text = render()
    if not parser.parse_args().check:
        FILE.write_text(text)
    elif text != FILE.read_text():
        sys.exit(f"{FILE.name} is old: make licences")


if __name__ == "__main__":
    main()
