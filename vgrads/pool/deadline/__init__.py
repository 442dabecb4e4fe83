"""How many nodes, where, of which kind and for how long, so that a bag keeps its deadline."""
