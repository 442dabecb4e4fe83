"""Plain queries through SQLAlchemy: on every kind of database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import text

_CLOCK = "SELECT extract(epoch FROM clock_timestamp())"


class EngineReader:
    """Reads and changes records of an open database."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def rows(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        """Return the result of a query, whose parameters are written ``:name``."""
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query), values).all()]

    def change(self, query: str, **values: object) -> None:
        """Run a statement in a transaction of its own; the parameters are written ``:name``."""
        with self._engine.begin() as connection:
            connection.execute(text(query), values)

    def now_s(self) -> float | None:
        """Return the clock of the database, in seconds; None where it has none."""
        if self._engine.dialect.name != "postgresql":
            return None
        return float(self.rows(_CLOCK)[0][0])
