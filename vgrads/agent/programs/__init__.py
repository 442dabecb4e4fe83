"""Programs that are sent to nodes and run there on their own: standard library only, no modules of
vgrads."""
