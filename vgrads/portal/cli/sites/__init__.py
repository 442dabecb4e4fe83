"""Commands of sites and what they offer."""
