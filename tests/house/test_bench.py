"""The page of benchmarks: a section is replaced by its benchmark's new one, and says which changes
came after it."""

import pytest

from scripts.bench import ROOT, count_commits, find_packages, mark_old, replace_sections

PAGE = """# Performance

Output of `make bench`.

## Planning

`python benchmarks/bench_planner.py`, 2026-11-20, 90 s, load 0.2 before

| tasks | s |
|---|--:|
| 24 | 3 |

## Start

`python benchmarks/bench_import.py`, 2 s

```
0.1 s
```
"""
NEWER = "\n## Start\n\n`python benchmarks/bench_import.py`, 2026-11-29, 3 s\n\n```\n0.2 s\n```\n"


def test_a_section_is_replaced_and_the_others_stay():
    page = replace_sections(PAGE, [NEWER])
    assert page == PAGE[: PAGE.index("\n## Start")] + NEWER


def test_a_section_of_a_new_benchmark_comes_last():
    section = NEWER.replace("bench_import", "bench_pool")
    assert replace_sections(PAGE, [section]) == PAGE + section


def test_sections_that_are_older_than_their_code_say_so_once():
    questions = []

    def count_changes(day, paths):
        questions.append((day, tuple(paths)))
        return 3 if day == "2026-11-20" else 0

    marked = mark_old(PAGE, count_changes)
    assert mark_old(marked, count_changes) == marked
    (line,) = [line for line in marked.splitlines() if line.startswith("*Older")]
    assert line.startswith("*Older than 3 changes of `planner`, ")
    assert [day for day, _ in questions] == ["2026-11-20", "2000-01-01"] * 2
    assert mark_old(marked, lambda _day, _paths: 0) == PAGE


def test_packages_are_found_through_modules_beside_a_benchmark():
    packages = find_packages(ROOT / "benchmarks" / "bench_planner.py")
    assert "planner" in packages and "vgrads/portal" not in packages
    assert all((ROOT / name).is_dir() for name in packages)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no repository around these files")
def test_changes_are_counted_from_a_day_on():
    assert count_commits("2000-01-01", ["planner"]) > 0
    assert count_commits("2099-01-01", ["planner"]) == 0
