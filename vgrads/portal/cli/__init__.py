"""People at a terminal: commands and what they print."""
