"""Workflow files of other systems, one format a module."""
