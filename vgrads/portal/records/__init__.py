"""Stored records: sets, plans, runs, journals, sites, histories, tokens."""
