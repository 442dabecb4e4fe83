"""Fit the distributions of tools' run times that come with the package, to recorded workflows.

    python scripts/fit_tools.py FOLDER

FOLDER has ``nextflow/`` and ``workflows/wfformat/``. Runs of one workflow count once, whatever
their number. Utilities of every system are measured here, on a file of ten megabytes.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vgrads_studies.runtimes.unseen import families

from vgrads.runtimes import tools
from vgrads.runtimes.common import pool_tools
from vgrads.runtimes.task_history import TaskHistory
from vgrads.traces.task_record import TaskRecord

PROGRAMS = frozenset(
    (
        "ataqv",
        "bbsplit",
        "bcftools",
        "bedtools",
        "bigwig",
        "blast",
        "blastall",
        "bwa",
        "bwamem",
        "bwamem1",
        "cycles",
        "deseq2",
        "dupradar",
        "fastqc",
        "featurecounts",
        "fq",
        "gatk",
        "gatk4",
        "gtf2bed",
        "kraken2",
        "macs2",
        "madd",
        "maq",
        "mbackground",
        "mbgmodel",
        "mconcatfit",
        "mdifffit",
        "mimgtbl",
        "mosdepth",
        "mproject",
        "multiqc",
        "mviewer",
        "phantompeakqualtools",
        "picard",
        "plotfingerprint",
        "plotprofile",
        "preseq",
        "prokka",
        "qualimap",
        "quast",
        "rseqc",
        "salmon",
        "samtools",
        "skewer",
        "star",
        "strelka",
        "stringtie",
        "subread",
        "tabix",
        "trimgalore",
        "ucsc",
        "unicycler",
        "vcftools",
    )
)
"""Names that stand for a program, not for a step of one workflow."""
TURNS = 3
UNSIZED_VARIANCE = 4.0
"""Of the run times of utilities that read data, whose sizes are often not stated."""
QUICK = frozenset(
    ("curl", "date", "echo", "ln", "ls", "mkdir", "mv", "printf", "rm", "touch", "true")
)
"""Utilities that read no data."""
UTILITIES = {
    "awk": "awk '{n += length($0)} END {print n}' x",
    "base64": "base64 x",
    "cat": "cat x",
    "cp": "cp x y",
    "curl": "curl --version",
    "cut": "cut -c 1-10 x",
    "date": "date",
    "diff": "diff x x",
    "echo": "/bin/echo x",
    "grep": "grep -c a x",
    "gunzip": "gunzip -c z.gz",
    "gzip": "gzip -c x",
    "head": "head x",
    "ls": "ls",
    "ln": "ln -sf x l",
    "md5sum": "md5sum x",
    "mkdir": "mkdir -p d",
    "mv": "mv x w; mv w x",
    "printf": "/usr/bin/printf x",
    "rm": "rm -f y",
    "sed": "sed s/a/b/ x",
    "sha256sum": "sha256sum x",
    "sort": "sort x",
    "split": "split -n 4 x",
    "tail": "tail x",
    "tar": "tar cf t.tar x",
    "touch": "touch y",
    "tr": "tr a b < x",
    "true": "/bin/true",
    "uniq": "uniq x",
    "wc": "wc x",
}


def is_of_program(name: str) -> bool:
    """Return True for a program, or one with its subcommand."""
    return name.split(maxsplit=1)[0] in PROGRAMS and not re.search(r"\d{3}", name)


def utilities() -> tools.Tools:
    """Measure the utilities."""
    with tempfile.TemporaryDirectory() as folder:
        text = "".join(f"{n * 7919 % 1000003} some words of a line {n}\n" for n in range(300_000))
        Path(folder, "x").write_text(text[: int(tools.USUAL_BYTES)])
        subprocess.run("gzip -k -c x > z.gz", shell=True, cwd=folder, check=True)
        kinds = []
        for name, command in UTILITIES.items():
            seconds = []
            for _ in range(TURNS):
                start = time.monotonic()
                subprocess.run(
                    command, shell=True, cwd=folder, stdout=subprocess.DEVNULL, check=True
                )
                seconds.append(time.monotonic() - start)
            record = TaskRecord(
                kind=name, seconds=sorted(seconds)[TURNS // 2], input_bytes=tools.USUAL_BYTES
            )
            kinds.append(([f"/{name}"], tools.level_of([record])))
    return {
        name: tools.ToolLevel(TURNS, level.mean, level.variance if quick else UNSIZED_VARIANCE)
        for name, level in tools.of_kinds(kinds).items()
        for quick in (name[1:] in QUICK,)
    }


def main(folder: Path) -> None:
    """Write the distributions."""
    every = [TaskHistory(tuple(some)) for some in families(folder).values()]
    programs = tools.of_families(map(pool_tools, every))
    chosen = {name: level for name, level in programs.items() if is_of_program(name)}
    document = tools.to_json({**utilities(), **chosen})
    lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(document.items()))
    target = Path(tools.__file__).with_name("tools.json")
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{target.name}: {len(document)} names")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
