"""Hosts ask: tasks go out, results come in, nothing is lost."""
