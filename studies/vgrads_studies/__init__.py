"""Studies over recorded load, and the workload model of bags."""
