"""The nodes of a dispatcher: requested and released through the drivers of sites, real or
simulated."""
