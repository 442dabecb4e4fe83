"""Extras of the installation: what each brings, and the error where one is missing.

A module that uses such a package calls :func:`require` and imports the package after it, in the
function that needs it. ``tests/house/test_extras.py`` lists these modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from vgrads.kernel.errors import InputError, SiteError

MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "policies": (),
        "plots": ("matplotlib",),
        "dask": ("distributed",),
        "oidc": ("authlib", "joserfc", "requests"),
        "postgres": ("psycopg",),
        "s3": ("s3fs",),
        "cwl": ("cwltool",),
        "alerts": ("apprise",),
        "studies": ("vgrads_studies",),
    }
)
"""Top-level modules of each extra in ``pyproject.toml``."""


class MissingExtraError(InputError):
    """A request needs an extra that is not installed; once it is, the same request is valid."""


def is_installed(extra: str) -> bool:
    """Return True where an extra is installed."""
    return all(find_spec(name) is not None for name in MODULES[extra])


def require(extra: str, what: str, where: str = "") -> None:
    """Load the packages of an extra. Raise MissingExtraError where one is not installed; ``what``
    needs it."""
    for name in MODULES[extra]:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise _make_missing_error(extra, what, where, error) from error


def refuse_missing(extra: str, what: str, where: str = "") -> None:
    """Raise MissingExtraError where an extra is not installed, without loading it: another process
    will use it."""
    for name in MODULES[extra]:
        if find_spec(name) is None:
            raise _make_missing_error(extra, what, where, ImportError(name=name))


def require_at(extra: str, what: str, site: str) -> None:
    """Load the packages of an extra that a site needs. Raise SiteError where one is not installed:
    transient, so that requests to the site wait."""
    try:
        require(extra, what)
    except MissingExtraError as error:
        raise SiteError(error.what, site=site, transient=True, fix=error.fix) from error


def _make_missing_error(extra: str, what: str, where: str, error: ImportError) -> MissingExtraError:
    # a package may be installed and yet fail, because of another one
    absent = error.name in MODULES[extra]
    why = "which is not installed" if absent else f"which cannot be loaded: {error}"
    return MissingExtraError(
        f"{what} needs the extra '{extra}', {why}",
        where=where,
        fix=f"pip install 'vgrads[{extra}]'",
    )
