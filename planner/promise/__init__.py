"""With which probability is a plan kept? Scenarios of slots and run times."""
