"""What cannot be run, told before anything is asked for."""

from __future__ import annotations

import importlib.util

from vgrads.execmgr.core.book import Book
from vgrads.kernel.errors import InputError


def refuse_without_s3(book: Book) -> None:
    """InputError where a file lies in S3 and nothing here reads that."""
    if importlib.util.find_spec("s3fs") is not None:
        return
    for placement in book.plan.placements:
        task = book.snapshot.task(placement.task_key)
        for file in (*task.fetches, *task.sends):
            if file.url.startswith("s3:"):
                raise InputError(
                    f"'{file.url}' needs s3, which is not installed",
                    where=f"task '{placement.task}' of {placement.workflow}",
                    fix="pip install 'vgrads[s3]', here and where tasks run",
                )


def refuse_without_commands(book: Book) -> None:
    """InputError for a task that has no command."""
    for placement in book.plan.placements:
        if not book.snapshot.task(placement.task_key).command:
            raise InputError(
                "has no command to run",
                where=f"task '{placement.task}' of {placement.workflow}",
                fix=(
                    "run it on simulated sites; a Snakefile's jobs are run by 'snakemake "
                    "--executor vgrads'"
                ),
            )
