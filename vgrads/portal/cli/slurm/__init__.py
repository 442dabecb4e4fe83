"""Commands ``vgrads slurm``."""
