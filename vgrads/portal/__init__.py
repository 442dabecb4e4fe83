"""Interfaces for users and programs: records, charts, background jobs, the web, the command
line."""
