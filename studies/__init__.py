"""Does it hold? Studies over recorded load: what would have been promised, and what then happened."""
