"""Acquisitions of slots, as runs observed them."""

from __future__ import annotations

from dataclasses import fields, replace

from vgrads.portal.records.reader import RecordReader
from vgrads.vgrid.acquisition import Acquisition


def newest_acquisitions(reader: RecordReader, limit: int = 1000) -> list[Acquisition]:
    """Return the newest slots of all sites."""
    names = [field.name for field in fields(Acquisition)]
    query = f"SELECT {', '.join(names)} FROM acquisition ORDER BY id DESC LIMIT :most"
    stored = reader.rows(query, most=limit)
    slots = [Acquisition(**dict(zip(names, row, strict=True))) for row in stored]
    # SQLite has no truth values
    return [replace(s, refused=bool(s.refused), broken=bool(s.broken)) for s in slots]
