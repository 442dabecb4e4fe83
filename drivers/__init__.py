"""The edge: how a slot is acquired and given back at each kind of site."""
