"""Bags of tasks and matrices: requests."""
