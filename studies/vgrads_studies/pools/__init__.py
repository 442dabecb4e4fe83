"""Number of workers of a pool: Yu's thesis (Notre Dame 2013), and sizing policies compared."""
