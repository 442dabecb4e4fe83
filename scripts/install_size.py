"""Print the packages of an environment, the space of each, and who requires it.

    python scripts/install_size.py [PYTHON] [--packages 65] [--megabytes 760]

PYTHON: of the environment; default: this one. Exit 1 where a limit is exceeded.

Megabytes (2^20 bytes) are disk blocks of the files that each package lists, with the bytecode that
pip made of them. pip and setuptools do not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser

_CODE = """
import importlib.metadata as metadata, json, os, re
def name_of(text):
    return re.sub("[-_.]+", "-", re.match("[A-Za-z0-9._-]+", text)[0]).lower()
rows, seen = {}, set()
for package in metadata.distributions():
    files = {os.path.realpath(package.locate_file(file)) for file in package.files or ()}
    files = {file for file in files if os.path.isfile(file)} - seen
    seen |= files
    needs = [text for text in package.requires or () if "extra ==" not in text]
    rows[name_of(package.metadata["Name"])] = {
        "bytes": sum(os.stat(file).st_blocks * 512 for file in files),
        "needs": sorted({name_of(text) for text in needs}),
    }
print(json.dumps(rows))
"""
_TOOLS = {"pip", "setuptools"}


def packages(python: str) -> dict[str, dict[str, object]]:
    """Return the packages of an interpreter's environment: ``bytes``, ``needs``, ``by``."""
    done = subprocess.run([python, "-P", "-c", _CODE], capture_output=True, text=True, check=True)
    rows = {name: row for name, row in json.loads(done.stdout).items() if name not in _TOOLS}
    for name, row in rows.items():
        row["by"] = sorted(other for other, more in rows.items() if name in more["needs"])
    return rows


def main() -> None:
    """Print the table and the sum."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("python", nargs="?", default=sys.executable)
    parser.add_argument("--packages", type=int, default=10**9)
    parser.add_argument("--megabytes", type=int, default=10**9)
    limits = parser.parse_args()
    rows = packages(limits.python)
    print("| package | MB | required by |\n| --- | --- | --- |")
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["bytes"]):
        print(f"| {name} | {row['bytes'] / 2**20:.1f} | {', '.join(row['by'])} |")
    total_mib = sum(row["bytes"] for row in rows.values()) / 2**20
    print(f"\n{len(rows)} packages, {total_mib:.0f} MB")
    if len(rows) > limits.packages or total_mib > limits.megabytes:
        sys.exit(f"at most {limits.packages} packages and {limits.megabytes} MB are permitted")


if __name__ == "__main__":
    main()
