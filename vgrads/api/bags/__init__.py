"""Bags of tasks and matrices: carried out, simulated, looked at."""
