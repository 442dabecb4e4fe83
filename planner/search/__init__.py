"""Search in simulated probability: other plans, more probable ones, then cheaper ones."""
