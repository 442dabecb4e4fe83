"""Pages of rows, newest first, in any kind of database."""

from __future__ import annotations

from collections.abc import Mapping

from vgrads.kernel.errors import InputError
from vgrads.portal.records.reader import RecordReader


def page_clause(
    reader: RecordReader,
    table: str,
    order: tuple[str, ...],
    values: Mapping[str, str | None],
    after: str = "",
) -> tuple[str, dict[str, object]]:
    """Return the conditions and the order of a query for a page of rows, and its parameters.

    ``order``: columns, the last one the id; ``values``: column → its value, where that is not None;
    ``after``: the id of the row before the page. InputError if that is gone.
    """
    columns, key = ", ".join(order), order[-1]
    parameters: dict[str, object] = {}
    conditions = []
    for column, value in values.items():
        if value is not None:
            parameters[f"v{len(parameters)}"] = value
            conditions.append(f"{column} = :v{len(parameters) - 1}")
    if after:
        if not reader.rows(f"SELECT 1 FROM {table} WHERE {key} = :after", after=after):
            raise InputError(f"'{after[:60]}' is not in this list", where="after")
        parameters["after"] = after
        conditions.append(f"({columns}) < (SELECT {columns} FROM {table} WHERE {key} = :after)")
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    return where + f"ORDER BY {', '.join(f'{column} DESC' for column in order)}", parameters
