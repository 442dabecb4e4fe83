"""REST and forms of single bags."""
