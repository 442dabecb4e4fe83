"""Prediction of queue waits: bounds on quantiles of waits, from history."""
