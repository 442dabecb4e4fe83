"""Promise a deadline on machines you do not own."""
