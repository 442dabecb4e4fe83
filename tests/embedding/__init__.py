"""Forecasts on pages and in programs of others."""
