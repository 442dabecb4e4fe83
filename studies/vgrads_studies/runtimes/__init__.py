"""Studies of learned run times on recorded tasks."""
