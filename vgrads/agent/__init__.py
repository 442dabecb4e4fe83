"""What runs on nodes: begins and ends processes, moves files, reports results. Standard library
only, Python 3.8."""
