"""A real Snakemake with the plugin, in an environment of its own: ``make snakemake`` makes it."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins" / "snakemake-executor-plugin-vgrads"
BIN = Path(
    os.environ.get("VGRADS_SNAKEMAKE") or ROOT / ".venv" / "snakemake" / "bin" / "python"
).parent
SNAKEMAKE = BIN / "snakemake"
HERE = '[[site]]\nname = "here"\nkind = "local"\nprocs = 4\ndriver = "local"\n'


def needed():
    """Skips with the reason where there is no Snakemake; where services are required it fails."""
    if not SNAKEMAKE.exists():
        reason = "no Snakemake here: make snakemake"
        if os.environ.get("VGRADS_SERVICES") == "required":
            pytest.fail(reason)
        pytest.skip(reason)


class Project:
    """A folder with a Snakefile, run by ``snakemake --executor vgrads``."""

    def __init__(self, folder: Path, snakefile: str, home: Path, sites: str = HERE) -> None:
        self.folder, self.home = folder, home
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "Snakefile").write_text(snakefile)
        (folder / "sites.toml").write_text(sites)

    def begin(self, *options: str, more: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start it; its output goes to ``out.txt``."""
        command = [
            SNAKEMAKE,
            "--executor",
            "vgrads",
            "-j",
            "100",
            "--vgrads-sites",
            "sites.toml",
            *options,
        ]
        if "--vgrads-url" in options:
            del command[5:7]
        environment = {**os.environ, "VGRADS_HOME": str(self.home), **(more or {})}
        with (self.folder / "out.txt").open("w") as out:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def run(self, *options: str, timeout_s: float = 240) -> tuple[int, str]:
        """Run it to its end: exit code and output."""
        process = self.begin(*options)
        try:
            process.wait(timeout_s)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, self.output

    @property
    def output(self) -> str:
        return (self.folder / "out.txt").read_text()

    def local(self, folder: Path) -> dict[str, bytes]:
        """What plain Snakemake makes of the same files, elsewhere."""
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns(".snakemake", "out.txt"))
        subprocess.run(
            [SNAKEMAKE, "--cores", "4", "-q", "all"], cwd=folder, check=True, capture_output=True
        )
        return files_in(folder)


def files_in(folder: Path) -> dict[str, bytes]:
    """Relative path → content of all that a workflow made."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file())
    names = {p: str(p.relative_to(folder)) for p in paths}
    return {
        n: p.read_bytes()
        for p, n in names.items()
        if not n.startswith((".snakemake", "out.txt", "logs"))
    }


PYTHON = [str(BIN / "python")] if BIN.exists() else [sys.executable]
