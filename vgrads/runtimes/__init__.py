"""Run time of a task on a machine, as a distribution. A decider: frozen values in, a distribution
out."""
