"""How many workers should a pool hold? Yu's thesis (Notre Dame 2013), and sizing policies
compared."""
