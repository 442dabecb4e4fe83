"""Number, site and duration of nodes. Deciders over numbers: the pool uses no bags and no
clocks."""
