"""Pydantic models of requests, for parameters of queries: made of their descriptions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from vgrads.kernel.units import parse_instant
from vgrads.operations.fields import INSTANT, FieldDescription, describe_fields


def query_model(of: type, without: frozenset[str] = frozenset()) -> type[BaseModel]:
    """Return the model of the parameters of a query: the fields of a request, except some."""
    parameters: dict[str, Any] = {
        field.name: (_find_type(field), ... if field.is_required else field.default)
        for field in describe_fields(of)
        if field.name not in without
    }
    return create_model(of.__name__, __config__=ConfigDict(extra="forbid"), **parameters)


def _find_type(field: FieldDescription) -> object:
    about, kind = field.about, field.type
    described = Field(
        description=about.help,
        examples=None if about.example is None else [about.example],
        ge=about.minimum,
        le=about.maximum,
        gt=about.above,
        lt=about.below,
        allow_inf_nan=False if about.maximum is not None else None,
        json_schema_extra={"enum": list(about.choices)} if about.choices else None,
    )
    if field.form == INSTANT:

        def parse(value: str | float | None) -> float | datetime | None:
            return None if value is None else parse_instant(value, field.name)

        return Annotated[kind, described, BeforeValidator(parse)]
    return Annotated[kind, described]
