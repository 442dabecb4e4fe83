"""Bags of tasks and matrices: execution, simulation, inspection."""
