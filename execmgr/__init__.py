"""Execution manager: carries out a plan in order and survives failures. The only part that acts."""
