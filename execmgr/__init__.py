"""Make it happen, in order, and survive: the one place that acts."""
