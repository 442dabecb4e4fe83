"""Sites of a call: a file, this machine, a mapping, or the sites that come with vgrads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgrads.api.config import THIS_MACHINE, embedded_data
from vgrads.interface.arguments import FileName, path_of
from vgrads.kernel.documents import validate
from vgrads.vgrid.catalog import Catalog, build_catalog, describe_this_machine, load_catalog
from vgrads.vgrid.documents import SitesDocument

Sites = FileName | Mapping[str, Any]
"""A TOML file, ``"here"`` (this machine), or a mapping with the fields of such a file."""


def catalog_of(sites: Sites | None, default: FileName | None = None) -> Catalog:
    """The catalogue of a call; without ``sites`` that of ``default``, else the embedded sites.

    Histories that a mapping names are relative to the working folder.
    """
    if isinstance(sites, Mapping):
        return build_catalog(validate(SitesDocument, sites, "sites"), Path.cwd(), "sites")
    chosen = default if sites is None else sites
    if chosen is None:
        return load_catalog(embedded_data() / "sites.toml")
    file = path_of(chosen)
    # a file of that name counts first
    if str(file) == THIS_MACHINE and not file.is_file():
        return describe_this_machine()
    return load_catalog(file)
