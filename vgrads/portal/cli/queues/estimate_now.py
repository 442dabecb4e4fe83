"""The start estimate of a Slurm site, taken when a forecast has been printed."""

from __future__ import annotations

from contextlib import suppress

from vgrads.api.queues.issued import IssuedForecast
from vgrads.kernel.errors import VgradsError
from vgrads.portal.jobs.forecasts.estimates import is_slurm, site_estimate_s
from vgrads.portal.records.forecasts.journal import ForecastJournal
from vgrads.portal.records.forecasts.rows import ForecastRecords
from vgrads.portal.records.reading.sites import read_stored_catalog
from vgrads.portal.records.store import Store


def take_estimate(forecast: IssuedForecast) -> None:
    """Store the forecast together with the estimate that its site states for such a job now."""
    with suppress(OSError, VgradsError):
        catalog = read_stored_catalog()
        if catalog is None or not is_slurm(catalog.sites, forecast.site):
            return
        estimate_s = site_estimate_s(
            catalog.site(forecast.site), forecast.queue, forecast.procs, forecast.walltime_s
        )
        with Store() as store:
            records = ForecastRecords(store.engine)
            records.fold(ForecastJournal())
            records.put_estimate([forecast.id], estimate_s)
