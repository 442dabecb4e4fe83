"""Cut a release: changelog, version, commit, tag, wheels, archive, list of parts, hashes, trial.

    python scripts/release.py 0.3.0 --dry-run   # all of it in a clone that is thrown away
    python scripts/release.py 0.3.0             # here; nothing leaves this machine
    python scripts/release.py 0.3.0 --publish   # the same, then uploads what is in dist/
    python scripts/release.py --build           # the distributions of what is checked out

What is made lies in ``dist/`` (``--out``). ``--quick`` leaves the demonstration out of the trial.
``--publish`` is refused while a field of ``scripts/release.toml`` is empty. Before a release:
``make audit``, ``make test-long``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
KINDS = ("added", "changed", "fixed")
PROJECTS = (".", "studies", "plugins/snakemake-executor-plugin-vgrads")
MOST_LINES = 120  # of one release in CHANGELOG.md: what somebody reads
FORMS = {
    "homepage": r"https://\S+",
    "repository": r"https://\S+",
    "issues": r"https://\S+",
    "documentation": r"https://\S+",
    "contact": r"[^\s@]+@[^\s@]+",
    "orcid": r"https://orcid\.org/(\d{4}-){3}\d{3}[\dX]",
    "doi": r"10\.\d{4,9}/\S+",
}
"""Fields of release.toml."""
_URLS = ("homepage", "repository", "issues", "documentation")
_CITED = {
    "homepage": "url: {}",
    "repository": "repository-code: {}",
    "doi": "doi: {}",
    "contact": "    email: {}",
    "orcid": "    orcid: {}",
}
"""Lines of CITATION.cff; indented ones belong to the authors."""
_OF_A_RELEASE = r"^(?:date-released|url|repository-code|doi|    email|    orcid): .*\n"
"""Those that the release before has written."""
_AUTHORS = "  - name: The vgrads developers\n"
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
    ("deploy/conda/recipe.yaml", r'^  version: "(.*)"$'),
)
_QUESTION = (
    "from vgrads.api.config import embedded_data; "
    "print(embedded_data() / 'histories' / 'mayhem.swf.gz')"
)


def gather(folder: Path) -> tuple[str, list[Path]]:
    """Return every change of a release as a list, and the fragments that it was made from."""
    lines, used = [], []
    for kind in KINDS:
        paths = sorted(folder.glob(f"*.{kind}.md"))
        if paths:
            lines += ["", f"## {kind.capitalize()}", ""]
            lines += [f"- {item}" for file in paths for item in _split_items(file.read_text())]
            used += paths
    return "\n".join(lines).strip() + "\n", used


def _split_items(text: str) -> list[str]:
    """A fragment may be a list of its own."""
    return [" ".join(item.split()) for item in re.split(r"^- ", text, flags=re.MULTILINE) if item]


def write_changes(root: Path, version: str, day: str) -> None:
    """Move the summary into CHANGELOG.md, and the fragments to a page of their own."""
    changes, used = gather(root / "changelog")
    if not used:
        raise SystemExit("changelog/: no fragment, so there is nothing to release")
    summary = root / "changelog" / f"{version}.summary.md"
    if not summary.is_file():
        raise SystemExit(f"changelog/{summary.name} is missing: what is new, for whom")
    section = f"## {version} ({day})\n\n{summary.read_text().strip()}\n"
    if (count := section.count("\n")) > MOST_LINES:
        raise SystemExit(f"changelog/{summary.name}: {count} lines, at most {MOST_LINES}")
    page = root / "docs" / "changes" / f"{version}.md"
    page.parent.mkdir(exist_ok=True)
    head = f"---\norphan: true\n---\n\n# Changes of {version}\n\nA summary is in CHANGELOG.md.\n"
    page.write_text(f"{head}\n{changes.replace('](docs/', '](../')}")
    log = root / "CHANGELOG.md"
    log.write_text(f"{_HEAD}\n{section}{log.read_text().removeprefix(_HEAD)}")
    for file in (*used, summary):
        file.unlink()


def set_version(root: Path, version: str) -> None:
    """Write the version down in each place that states it."""
    for name, pattern in _PLACES:
        file = root / name
        text = file.read_text()
        match = re.search(pattern, text, re.MULTILINE)
        if match is None:
            raise SystemExit(f"{name}: no version in it")
        file.write_text(text[: match.start(1)] + version + text[match.end(1) :])


def read_fields(root: Path) -> dict[str, str]:
    """Return the fields of release.toml that are filled; refuse what cannot be one."""
    name = "scripts/release.toml"
    fields = tomllib.loads((root / name).read_text())
    for field, value in fields.items():
        if field not in FORMS:
            raise SystemExit(f"{name}: no field {field}; there are {', '.join(FORMS)}")
        if value and not re.fullmatch(FORMS[field], value):
            raise SystemExit(f"{name}: {field} = {value!r} does not match {FORMS[field]}")
    return {field: fields[field] for field in FORMS if fields.get(field)}


def write_fields(root: Path, fields: dict[str, str], day: str) -> None:
    """Write the filled fields where installers and those who cite look for them."""
    urls = [f"{name.capitalize()} = {json.dumps(fields[name])}" for name in _URLS if name in fields]
    for project in PROJECTS:
        file = root / project / "pyproject.toml"
        text = re.sub(
            r"^\[project\.urls\]\n(?:\w.*\n)*\n", "", file.read_text(), flags=re.MULTILINE
        )
        if urls:
            block = "\n".join(["[project.urls]", *urls])
            text = re.sub(r"^(?=\[(?:project\.|tool\.))", f"{block}\n\n", text, count=1, flags=re.M)
        if contact := fields.get("contact"):
            entry = f'authors = [{{ name = "vgrads developers", email = {json.dumps(contact)} }}]'
            text = re.sub(r"^authors = .*$", entry, text, flags=re.MULTILINE)
        file.write_text(text)
    lines = {name: line.format(fields[name]) for name, line in _CITED.items() if name in fields}
    of_authors = "".join(f"{line}\n" for line in lines.values() if line.startswith(" "))
    others = [line for line in lines.values() if not line.startswith(" ")]
    file = root / "CITATION.cff"
    text = re.sub(_OF_A_RELEASE, "", file.read_text(), flags=re.MULTILINE)
    text = text.replace(_AUTHORS, _AUTHORS + of_authors)
    text = re.sub(
        r"^(version: .*)$",
        "\n".join([r"\1", f"date-released: {day}", *others]),
        text,
        flags=re.MULTILINE,
    )
    file.write_text(text)


def build_distributions(root: Path, out: Path) -> list[Path]:
    """Build the wheels and the archive; the same commit gives the same bytes."""
    at = _read_commit_time(root)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for project in PROJECTS:
        kinds = ["--wheel", "--sdist"] if project == "." else ["--wheel"]
        command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(out)]
        _run([*command, project], root, SOURCE_DATE_EPOCH=at)
    return sorted(out.iterdir())


def write_hashes(out: Path) -> None:
    """Write SHA256SUMS, as ``sha256sum -c`` reads it."""
    files = sorted(file for file in out.iterdir() if file.name != "SHA256SUMS")
    rows = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (out / "SHA256SUMS").write_text("".join(rows))


def install_wheel(root: Path, out: Path, folder: Path) -> Path:
    """Install the wheel in a new environment with the pinned versions; return its Python."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    (wheel,) = out.glob("vgrads-*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    _run(
        [*pip, "--disable-pip-version-check", "-c", str(root / "constraints.txt"), str(wheel)], root
    )
    return python


def write_parts(root: Path, python: Path, file: Path) -> None:
    """Write the list of what an installation consists of (CycloneDX), without this machine."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
    pyproject = ["--pyproject", str(root / "pyproject.toml")]
    at = _read_commit_time(root)
    text = _run([*command, *pyproject, str(python)], root, SOURCE_DATE_EPOCH=at)
    document = json.loads(text)
    ours = document["metadata"]["component"]["bom-ref"]
    document["components"] = [
        _drop_local(part) for part in document["components"] if part["name"] != "vgrads"
    ]
    document["dependencies"] = [
        row
        for row in document["dependencies"]
        if row["ref"] == ours or "vgrads==" not in row["ref"]
    ]
    file.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def _drop_local(part: dict[str, list[dict[str, str]]]) -> dict[str, list[dict[str, str]]]:
    """Leave out where a package was taken from on this machine."""
    references = part.get("externalReferences", [])
    part["externalReferences"] = [r for r in references if not r["url"].startswith("file:")]
    return part


def try_wheel(python: Path, folder: Path, version: str, quick: bool) -> None:
    """Run what a stranger runs first, in a folder of its own, with an empty home."""
    folder.mkdir()
    vgrads = str(python.with_name("vgrads"))
    home = str(folder / "home")
    printed = _run([vgrads, "--version"], folder, VGRADS_HOME=home).strip()
    if printed != f"vgrads {version}":
        raise SystemExit(f"the wheel says {printed!r}, not version {version}")
    log = _run([str(python), "-I", "-c", _QUESTION], folder).strip()
    question = ["forecast", log, "--procs", "8", "--walltime", "1h", "--json"]
    if not json.loads(_run([vgrads, *question], folder, VGRADS_HOME=home)):
        raise SystemExit("the wheel has no answer about a queue")
    if not quick:
        outcome = _run([vgrads, "demo"], folder, VGRADS_HOME=home).strip().splitlines()[-1]
        _say(f"demo: {outcome}")


def check_distributions(out: Path) -> None:
    """Let twine judge the metadata."""
    _run([sys.executable, "-m", "twine", "check", "--strict", *_list_distributions(out)], out)


def _list_distributions(out: Path) -> list[str]:
    return [str(file) for file in sorted(out.iterdir()) if file.name.endswith((".whl", ".tar.gz"))]


def _read_commit_time(root: Path) -> str:
    """Return the Unix time of the commit that is checked out, for SOURCE_DATE_EPOCH."""
    return _run(["git", "log", "-1", "--format=%ct"], root).strip()


def release(root: Path, version: str, out: Path, *, quick: bool) -> None:
    """Do everything in a checkout, up to the tag and what is to be published."""
    if _run(["git", "status", "--porcelain"], root).strip():
        raise SystemExit("the checkout has changes that are not committed")
    if _run(["git", "tag", "--list", f"v{version}"], root).strip():
        raise SystemExit(f"there is a tag v{version} already")
    day = datetime.now(UTC).date().isoformat()
    write_changes(root, version, day)
    set_version(root, version)
    write_fields(root, read_fields(root), day)
    _run(["git", "add", "--all"], root)
    _run(["git", "commit", "--quiet", "--message", f"Release {version}"], root)
    _say("changelog, version: committed")
    build_distributions(root, out)
    check_distributions(out)
    _say("wheels and archive: built and checked")
    with tempfile.TemporaryDirectory(prefix="vgrads-release-") as name:
        python = install_wheel(root, out, Path(name) / "env")
        write_parts(root, python, out / f"vgrads-{version}.cdx.json")
        try_wheel(python, Path(name) / "trial", version, quick)
    _say("installed in a new environment, tried")
    write_hashes(out)
    _run(["git", "tag", "--annotate", f"v{version}", "--message", f"vgrads {version}"], root)
    _say(f"tag v{version}\n{(out / 'SHA256SUMS').read_text()}")


def rehearse(root: Path, version: str, out: Path, *, quick: bool) -> None:
    """Do everything in a clone, which is removed; what was made stays in ``out``."""
    with tempfile.TemporaryDirectory(prefix="vgrads-rehearsal-") as name:
        clone = Path(name) / "vgrads"
        _run(["git", "clone", "--quiet", str(root), str(clone)], root)
        for key in ("user.name", "user.email"):
            _run(["git", "config", key, _run(["git", "config", key], root).strip()], clone)
        release(clone, version, out, quick=quick)
        section = (clone / "CHANGELOG.md").read_text().split("\n## ")[1]
        _say(f"CHANGELOG.md has {section.count(chr(10))} lines on it")


def refuse_unknown(root: Path) -> None:
    """Stop where a field is empty that a publication needs."""
    missing = [field for field in FORMS if field not in read_fields(root)]
    if missing:
        raise SystemExit(f"scripts/release.toml: fill in {', '.join(missing)} before --publish")


def publish(out: Path) -> None:
    """Upload the distributions to the registry that twine is set up for."""
    _run([sys.executable, "-m", "twine", "upload", *_list_distributions(out)], out)
    _say("uploaded. Left to do: push the commit and the tag; attach dist/ to the release there")


def _run(command: Sequence[str], folder: Path, **variables: str) -> str:
    """Return what a command prints; where it fails, end with that. It sees nothing of a checkout
    that its caller may have set up."""
    ours = ("PYTHONPATH", "VGRADS_")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _say(text: str) -> None:
    print(text, flush=True)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", nargs="?")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=root / "dist")
    chosen = parser.parse_args(arguments)
    out = chosen.out.absolute()
    if chosen.build:
        _say("\n".join(str(file) for file in build_distributions(root, out)))
        check_distributions(out)
        return
    if not chosen.version or not re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", chosen.version):
        parser.error("VERSION is needed, as 0.3.0 or 0.3.0rc1")
    if chosen.publish:
        refuse_unknown(root)
    act: Callable[..., None] = rehearse if chosen.dry_run else release
    act(root, chosen.version, out, quick=chosen.quick)
    if chosen.publish and not chosen.dry_run:
        publish(out)


if __name__ == "__main__":
    main()
