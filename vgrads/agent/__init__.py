"""The agent that runs on nodes: starts and ends processes, moves files, reports results. Standard
library only, Python 3.8."""
