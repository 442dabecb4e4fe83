"""The private service of Slurm's commands, over HTTP on a Unix socket."""
