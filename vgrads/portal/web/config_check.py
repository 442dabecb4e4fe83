"""Test of settings before use: does the database answer, can the sites be read?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.portal.jobs.alarm_delivery import check_schemes
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.portal.records.store import Store
from vgrads.portal.web.serving import missing_queues, refuse_open_address, refuse_without_oidc
from vgrads.portal.web.settings import ServiceSettings

Json = dict[str, Any]


def try_settings(settings: ServiceSettings) -> Json:
    """Return the settings in force, after the database has answered and the sites have been
    read."""
    with Store(settings.database) as store:
        access = AccessControl(store.engine)
        refuse_open_address(settings, access)
        tokens = len(access.tokens())
    catalog = choose_catalog(settings.sites)
    missing = missing_queues(settings, catalog)
    if missing:
        raise InputError(
            f"the queue '{missing[0]}', which the settings name, does not exist",
            where="public_forecasts, wait_gauges",
            fix="see 'vgrads sites list'",
        )
    if settings.alarm_schemes:
        check_schemes(settings.alarm_schemes)
    payload = settings.model_dump(mode="json") | {"db": _hide_password(settings.database)}
    if payload["oidc"]:
        refuse_without_oidc()
        payload["oidc"]["client_secret"] = (
            "set" if settings.oidc and settings.oidc.client_secret else ""
        )
    return {"settings": payload, "sites": [site.name for site in catalog.sites], "tokens": tokens}


def _hide_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    return f"{scheme}{mark}{login.partition(':')[0]}{at}{place}" if at else url


def settings_text(payload: Mapping[str, Any]) -> str:
    """Return settings as text."""
    lines = [f"{name} = {value!r}" for name, value in payload["settings"].items()]
    return "\n".join(
        [*lines, f"sites: {', '.join(payload['sites'])}", f"tokens: {payload['tokens']}"]
    )
