"""How long will this task run here, and how surely? A decider: frozen values in, a distribution
out."""
