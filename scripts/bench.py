"""Run benchmarks and write what they printed to docs/performance.md.

    python scripts/bench.py              # all of benchmarks/
    python scripts/bench.py portal bags  # these; the other sections stay as they are
    python scripts/bench.py --mark       # none; only say which sections are older than their code

Each benchmark prints ratios against a named alternative in the same run, and says so where a peer
is not installed. One that fails is named, and the page is not written. A section says how many
later changes there are of the packages that it measures; changes of names and layout alone
(``.git-blame-ignore-revs``) do not count.
"""

from __future__ import annotations

import argparse
import ast
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
_HEAD = """# Performance

Output of `make bench`, Python {python}, {cores} processors; alternatives in the same run. \
Dispatcher of bags: [How fast](dispatch.md#how-fast).
"""
_COMMAND = re.compile(r"^`python (benchmarks/\S+?\.py)[^`]*`.*$", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MARK = re.compile(r"\n\n\*Older than \d[^\n]*\*(?=\n)")

ChangeCounter = Callable[[str, Sequence[str]], int]
"""(date, paths) → commits that changed these later."""


def make_section(script: Path) -> str:
    """Run a benchmark; return its heading, command, date, duration, the load before, and output."""
    began, load = time.perf_counter(), os.getloadavg()[0]
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    if done.returncode:
        sys.exit(f"{script.name} failed:\n{done.stderr[-2000:]}")
    summary, _, _ = (ast.get_docstring(ast.parse(script.read_text())) or "").partition("\n\n")
    about = " ".join(summary.split()).rstrip(".")
    seconds = time.perf_counter() - began
    output = done.stdout.strip()
    if "|---" not in output:
        output = f"```\n{output}\n```"
    name, day = script.relative_to(ROOT), datetime.now(UTC).date()
    how = f"`python {name}`, {day}, {seconds:.0f} s, load {load:.1f} before"
    return f"\n## {about}\n\n{how}\n\n{output}\n"


def replace_sections(page: str, sections: Sequence[str]) -> str:
    """Return a page with new sections in place of those of the same benchmark; others are
    added."""
    head, *parts = re.split(r"(?=\n## )", page)
    places = {_find_script(part): n for n, part in enumerate(parts) if _find_script(part)}
    for section in sections:
        place = places.get(_find_script(section))
        if place is None:
            parts.append(section)
        else:
            parts[place] = section
    return head + "".join(parts)


def mark_old(page: str, count_changes: ChangeCounter) -> str:
    """Return a page on which each section says how many later changes there are of what it
    measures; a section without a date has that of the page."""
    head, *parts = re.split(r"(?=\n## )", _MARK.sub("", page))
    of_page = _DATE.search(head)
    for n, part in enumerate(parts):
        command = _COMMAND.search(part)
        if command is None or not (ROOT / command[1]).is_file():
            continue
        day = _DATE.search(command[0]) or of_page
        packages = find_packages(ROOT / command[1])
        count = count_changes(day[0] if day else "2000-01-01", packages)
        if count:
            names = ", ".join(f"`{name}`" for name in packages)
            mark = f"\n\n*Older than {count} change{'s' * (count > 1)} of {names}.*"
            parts[n] = part[: command.end()] + mark + part[command.end() :]
    return head + "".join(parts)


def find_packages(script: Path) -> list[str]:
    """Return the folders of the product that a benchmark imports, itself or through modules beside
    it; the whole product where it imports none, and runs commands."""
    seen, packages, pending = {script}, set[str](), [script]
    while pending:
        for name in _list_imports(pending.pop()):
            beside = script.parent / f"{name}.py"
            if beside.is_file() and beside not in seen:
                seen.add(beside)
                pending.append(beside)
            parts = name.split(".")
            if parts[0] == "vgrads" and len(parts) > 1:
                packages.add(str((ROOT / "vgrads" / parts[1]).resolve().relative_to(ROOT)))
    return sorted(name for name in packages if (ROOT / name).is_dir()) or ["vgrads"]


def _find_script(section: str) -> str:
    command = _COMMAND.search(section)
    return command[1] if command else ""


def _list_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def count_commits(day: str, paths: Sequence[str]) -> int:
    """Return how many commits after a day changed these folders."""
    ignored = (ROOT / ".git-blame-ignore-revs").read_text().split()
    command = ["git", "log", "--format=%H", f"--since={day} 23:59:59", "--", *paths]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    return sum(commit not in ignored for commit in done.stdout.split())


def main() -> None:
    """All of them, or those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mark", action="store_true")
    chosen = parser.parse_args()
    scripts = sorted((ROOT / "benchmarks").rglob("bench_*.py"))
    by_name = {script.stem.removeprefix("bench_"): script for script in scripts}
    wrong = [name for name in chosen.names if name not in by_name]
    if wrong:
        parser.error(f"no benchmark '{wrong[0]}'; there are {', '.join(by_name)}")
    sections = []
    for name in chosen.names or (() if chosen.mark else by_name):
        print(f"{name} …", file=sys.stderr, flush=True)
        sections.append(make_section(by_name[name]))
    page = PAGE.read_text()
    if not chosen.names and not chosen.mark:
        page = _HEAD.format(python=platform.python_version(), cores=os.cpu_count())
    PAGE.write_text(mark_old(replace_sections(page, sections), count_commits))


if __name__ == "__main__":
    main()
