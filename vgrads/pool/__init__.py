"""How many hosts, where, until when? Deciders over numbers: the pool knows no bags and no
clocks."""
