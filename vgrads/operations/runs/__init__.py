"""Runs, bags and pools that exist: requests with their ids."""
