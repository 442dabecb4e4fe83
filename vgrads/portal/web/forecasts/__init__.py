"""Forecasts over HTTP: many in one call, their records, their scores."""
