"""How it looks: Gantt charts, backtests, fits, as pages and pictures."""
