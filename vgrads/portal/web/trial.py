"""Settings tried before anybody serves with them: does the database answer, can the sites be
read?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vgrads.portal.records.access import Access
from vgrads.portal.records.sites import choose_catalog
from vgrads.portal.records.store import Store
from vgrads.portal.web.serving import refuse_open_door
from vgrads.portal.web.settings import ServiceSettings

Json = dict[str, Any]


def try_settings(settings: ServiceSettings) -> Json:
    """The settings that rule, once the database answers and the sites can be read."""
    with Store(settings.database) as store:
        access = Access(store.engine)
        refuse_open_door(settings, access)
        tokens = len(access.tokens())
    catalog = choose_catalog(settings.sites)
    told = settings.model_dump(mode="json") | {"db": _without_password(settings.database)}
    if told["oidc"]:
        told["oidc"]["client_secret"] = (
            "set" if settings.oidc and settings.oidc.client_secret else ""
        )
    return {"settings": told, "sites": [site.name for site in catalog.sites], "tokens": tokens}


def _without_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    return f"{scheme}{mark}{login.partition(':')[0]}{at}{place}" if at else url


def settings_text(told: Mapping[str, Any]) -> str:
    """Settings for a person."""
    lines = [f"{name} = {value!r}" for name, value in told["settings"].items()]
    return "\n".join([*lines, f"sites: {', '.join(told['sites'])}", f"tokens: {told['tokens']}"])
