"""How long will this queue make this job wait? Bounds on quantiles of waits, from history."""
