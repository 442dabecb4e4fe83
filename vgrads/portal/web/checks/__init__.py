"""Checks of requests: what is counted and remembered of each."""
