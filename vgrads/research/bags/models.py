"""Which model of bags is meant: a row of the paper's table, or what was fitted to a history."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from vgrads.kernel.documents import Document, load_mapping, validate
from vgrads.kernel.errors import InputError
from vgrads.research.bags.distributions import Distribution, stated
from vgrads.research.bags.model import Model, model_named

CHARACTERISTICS = {
    "inter-arrival": "inter_arrival",
    "daily cycle": "daily_cycle",
    "size": "size",
    "run time": "runtime",
    "variability": "variability",
}


class FitDocument(Document):
    """One family that was fitted, with its parameters and how far off it is."""

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
    """What ``vgrads bags fit --json`` writes."""

    bags: int
    tasks: int
    of_two_or_more: int
    users: UsersDocument
    characteristics: Mapping[str, CharacteristicDocument]


def model_given(given: str) -> Model:
    """A row of the table by its name, or a fit by its file, which ends in .json.

    InputError lists the rows, or names the file and what is wrong in it.
    """
    if not given.endswith(".json"):
        return model_named(given)
    found = validate(FittedDocument, load_mapping(Path(given)), given)
    parts = {
        field: _best(found, name, f"{given}: characteristics.{name}")
        for name, field in CHARACTERISTICS.items()
    }
    return Model(users=(found.users.zipf, found.users.count), **parts)


def _best(found: FittedDocument, name: str, where: str) -> Distribution:
    """The nearest family, wherever in the list it stands."""
    if name not in found.characteristics:
        raise InputError("is missing", where=where)
    best = min(found.characteristics[name].fits, key=lambda fit: fit.d)
    try:
        return stated(best.family, best.parameters)
    except InputError as error:
        raise error.within(where) from error
