"""Workflows: tasks, DAG workflows, workflow sets, and their files."""
