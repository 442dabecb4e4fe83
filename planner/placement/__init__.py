"""Placement of tasks in slots: calendars, list scheduling, mappings, packings."""
