"""Shell completion of names in this installation. It must be fast, and never fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path


def _offer_names(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        try:
            return sorted(name for name in names() if name.startswith(incomplete))
        except Exception:
            return []  # no error message within a command line

    return complete


def _list_runs() -> Iterable[str]:
    from vgrads.portal.records.store import Store

    with Store() as store:
        return [row.id for row in store.list_runs()]


def _list_sites() -> Iterable[str]:
    from vgrads.portal.records.reading.sites import choose_catalog

    return [site.name for site in choose_catalog(None).sites]


def _list_policies() -> Iterable[str]:
    from vgrads.planner.policies import POLICIES

    return POLICIES


def complete_sets(incomplete: str) -> list[str]:
    """Return files that may be sets, and folders that may contain them."""
    base = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    try:
        texts = [f"{p}/" if p.is_dir() else str(p) for p in base.iterdir()]
    except OSError:
        return []
    fits = (".yaml", ".yml", ".json", "/")
    return sorted(p for p in texts if p.endswith(fits) and p.startswith(incomplete))


complete_runs = _offer_names(_list_runs)
complete_sites = _offer_names(_list_sites)
complete_policies = _offer_names(_list_policies)
