"""Falkon's tables (SC 2007) on the dispatcher of vgrads."""
