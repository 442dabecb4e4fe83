"""GridBot's tables (SC 2009) on the dispatcher of vgrads."""
