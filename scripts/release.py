"""Cut a release: gather the changelog's fragments, write the version where it stands.

    python scripts/release.py 0.3.0

Then look at what changed, commit it, tag it ``v0.3.0``, and build the wheel (``make wheel``).
"""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
KINDS = ("added", "changed", "fixed")
_HEAD = "# Changelog\n\nGathered from `changelog/` at each release.\n"
_PLUGIN = "plugins/snakemake-executor-plugin-vgrads/pyproject.toml"
_STUDIES = "studies/pyproject.toml"
_PLACES = (
    ("pyproject.toml", r'^version = "(.*)"$'),
    ("CITATION.cff", r"^version: (.*)$"),
    (_PLUGIN, r'^version = "(.*)"$'),
    (_PLUGIN, r'"vgrads==([^"]*)"'),
    ("pyproject.toml", r'"vgrads-studies==([^"]*)"'),
    (_STUDIES, r'^version = "(.*)"$'),
    (_STUDIES, r'"vgrads==([^"]*)"'),
)


def gather(folder: Path, version: str, day: str) -> tuple[str, list[Path]]:
    """The section of a release, and the fragments that it was made from."""
    lines, used = [f"## {version} ({day})"], []
    for kind in KINDS:
        paths = sorted(folder.glob(f"*.{kind}.md"))
        if paths:
            lines += ["", f"### {kind.capitalize()}", ""]
            lines += [f"- {' '.join(file.read_text().split())}" for file in paths]
            used += paths
    return "\n".join(lines) + "\n", used


def set_version(root: Path, version: str) -> None:
    """Write the version down in each place that states it."""
    for name, pattern in _PLACES:
        file = root / name
        text = file.read_text()
        match = re.search(pattern, text, re.MULTILINE)
        if match is None:
            raise SystemExit(f"{name}: no version in it")
        file.write_text(text[: match.start(1)] + version + text[match.end(1) :])


def release(root: Path, version: str, day: str) -> None:
    """Everything in the tree; nothing is committed."""
    section, used = gather(root / "changelog", version, day)
    if not used:
        raise SystemExit("changelog/: no fragment, so there is nothing to release")
    log = root / "CHANGELOG.md"
    log.write_text(f"{_HEAD}\n{section}{log.read_text().removeprefix(_HEAD)}")
    set_version(root, version)
    for file in used:
        file.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version")
    release(ROOT, parser.parse_args().version, datetime.now(UTC).date().isoformat())
