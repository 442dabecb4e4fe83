"""Choice of a bag model: a row of the paper's table, or a fit of a history."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from vgrads.kernel.documents import Document, load_mapping, validate
from vgrads.kernel.errors import InputError
from vgrads.workloads.distributions import Distribution, stated
from vgrads.workloads.model import WorkloadModel, model_named

CHARACTERISTICS = {
    "inter-arrival": "inter_arrival",
    "daily cycle": "daily_cycle",
    "size": "size",
    "run time": "runtime",
    "variability": "variability",
}


class FitDocument(Document):
    """A fitted family, with its parameters and its distance."""

    family: str
    parameters: tuple[Annotated[float, Field(allow_inf_nan=False)], ...]
    d: Annotated[float, Field(allow_inf_nan=False)]


class CharacteristicDocument(Document):
    """All families of a characteristic, the best first."""

    values: int
    fits: Annotated[tuple[FitDocument, ...], Field(min_length=1)]


class UsersDocument(Document):
    """Zipf's law over users."""

    zipf: Annotated[float, Field(ge=0, le=100)]
    count: Annotated[int, Field(ge=1, le=1_000_000)]


class FittedDocument(Document):
    """The output of ``vgrads bags fit --json``."""

    bags: int
    tasks: int
    of_two_or_more: int
    users: UsersDocument
    characteristics: Mapping[str, CharacteristicDocument]


def select_model(text: str) -> WorkloadModel:
    """Return a row of the table by its name, or a fit by its file, which ends in .json.

    Raises InputError with the list of rows, or with the file and its error.
    """
    if not text.endswith(".json"):
        return model_named(text)
    fitted_document = validate(FittedDocument, load_mapping(Path(text)), text)
    parts = {
        field: _find_best(fitted_document, name, f"{text}: characteristics.{name}")
        for name, field in CHARACTERISTICS.items()
    }
    return WorkloadModel(users=(fitted_document.users.zipf, fitted_document.users.count), **parts)


def _find_best(fitted_document: FittedDocument, name: str, where: str) -> Distribution:
    """Return the nearest family, at any position in the list."""
    if name not in fitted_document.characteristics:
        raise InputError("is missing", where=where)
    best = min(fitted_document.characteristics[name].fits, key=lambda fit: fit.d)
    try:
        return stated(best.family, best.parameters)
    except InputError as error:
        raise error.within(where) from error
