"""Commands of bags and matrices."""
