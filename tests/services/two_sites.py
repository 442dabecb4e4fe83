"""Real Slurm and real Grid Engine as sites; ``{access}``: how they are reached."""

SITES = """
[[site]]
name = "slurm"
kind = "batch"
procs = 32
cores_per_node = 8
driver = "slurm"
{access}
[[site.queue]]
name = "batch"
max_walltime = "1h"
stated_probability = 0.95
stated_wait = "5s"
[[site]]
name = "sge"
kind = "batch"
procs = 2
cores_per_node = 2
driver = "gridengine"
{access}
[[site.queue]]
name = "batch.q"
max_walltime = "1h"
stated_probability = 0.95
stated_wait = "5s"
"""
