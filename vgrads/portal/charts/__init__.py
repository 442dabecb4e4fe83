"""Charts: Gantt charts, backtests, fits, as pages and pictures."""
