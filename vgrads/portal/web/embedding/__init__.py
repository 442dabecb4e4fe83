"""Forecasts on pages and in programs of others: allowed origins, public queues, gauges."""
