"""The sites of a service: those it began with, with the histories of the database; and those that
are stored while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from vgrads.kernel.errors import SiteError, VgradsError
from vgrads.portal.records.reader import RecordReader
from vgrads.portal.records.reading.sites import (
    read_stored_histories,
    read_stored_sites,
    replace_by_uploads,
)
from vgrads.vgrid.catalog import Catalog

_log = logging.getLogger("vgrads.sites")


class ServiceSites:
    """The sites as they are now, for all parts of a service."""

    def __init__(self, catalog: Catalog, reader: RecordReader) -> None:
        self._base, self._reader = catalog, reader
        self._choose: Callable[[], Catalog] | None = None
        self._stored: list[tuple[object, ...]] = []
        self.refresh()

    def current(self) -> Catalog:
        """Return the sites as they are now."""
        return self._catalog

    def refresh(self) -> None:
        """Reload changed histories."""
        self._histories = read_stored_histories(self._reader)
        self._catalog = replace_by_uploads(self._base, self._reader)

    def follow(self, choose: Callable[[], Catalog]) -> None:
        """Use the sites that ``choose`` returns as soon as those of the database have changed."""
        self._choose, self._stored = choose, read_stored_sites()

    def look(self) -> None:
        """Look whether the sites of the database, or their histories, have changed: another process
        may have collected accounting."""
        try:
            if read_stored_histories(self._reader) != self._histories:
                self.refresh()
            stored = self._stored if self._choose is None else read_stored_sites()
        except SiteError:  # it does not answer: looked at again soon, and other work goes on
            return
        if self._choose is None or stored == self._stored:
            return
        # before they are used: those that cannot be are reported once
        self._stored = stored
        try:
            base = self._choose()
        except VgradsError as error:
            _log.warning("sites of the database cannot be used; the earlier ones stay: %s", error)
            return
        before, after = ([site.name for site in sites] for sites in (self._base.sites, base.sites))
        self._base = base
        self.refresh()
        gone = [name for name in before if name not in after]
        more = f"; no longer: {', '.join(gone)}" if gone else ""
        _log.info("the sites of the database have changed. Now: %s%s", ", ".join(after), more)
