"""Workflow files of other systems, one module per format."""
