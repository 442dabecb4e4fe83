"""Slurm's commands for tests that need no daemon: what they print is a file."""

HEADER = (
    "JobIDRaw|User|Account|Partition|Submit|Eligible|Start|End|State|Timelimit|NNodes|NCPUS|ReqCPUS"
)


def use_commands(folder, monkeypatch, sinfo):
    """Put ``sinfo`` (a script), ``sacct`` and an empty ``squeue`` on the search path; ``sacct``
    prints ``sacct.txt`` of the folder."""
    (folder / "bin").mkdir()
    sacct = f"#!/bin/sh\ncat {folder}/sacct.txt\n"
    for name, text in (("sinfo", sinfo), ("sacct", sacct), ("squeue", "#!/bin/sh\n")):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
