"""Probability of a plan: scenarios of slots and run times."""
