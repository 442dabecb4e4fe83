"""Commands for sites and their offers."""
