"""Studies of kept promises: plans carried out among recorded load."""
