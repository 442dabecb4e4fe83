"""Are the promises of plans kept? Plans carried out among recorded load."""
