"""What is kept: sets, plans, runs, journals, sites, histories, tokens."""
