"""Background work on issued forecasts: their outcomes, and the start estimates of sites."""
