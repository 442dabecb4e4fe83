"""Jobs that Slurm's commands submit: stored, released to open bags, followed to their end."""
