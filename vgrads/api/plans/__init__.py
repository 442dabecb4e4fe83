"""Plans of workflow sets: planning, execution, resuming, explanation; run times."""
