"""What would that cluster or cloud have done? Batch systems in virtual time."""
