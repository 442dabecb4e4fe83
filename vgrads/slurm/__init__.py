"""Slurm's commands: how their arguments are read and how their replies look."""
