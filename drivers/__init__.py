"""Drivers: acquire and release slots at each kind of site."""
