"""Opens the records for reading, in any kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vgrads.portal.records.reader import RecordReader, open_current


@contextmanager
def open_reader(url: str | None = None) -> Iterator[RecordReader]:
    """Open the records for reading."""
    with open_current(url) as reader:
        if reader is not None:
            yield reader
            return
    from vgrads.portal.records.store import Store

    with Store(url) as store:
        yield store.reader
