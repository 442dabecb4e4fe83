"""Matrices as kinds of a bag's document: ``kind: allpairs`` or ``kind: wavefront``, with the
options of the commands as fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import create_model

from vgrads.kernel.documents import Document, load_mapping, validate
from vgrads.kernel.errors import InputError
from vgrads.operations.bags.matrix_requests import AllPairsRequest, WavefrontRequest
from vgrads.operations.fields import describe_fields

KINDS: dict[str, type[AllPairsRequest] | type[WavefrontRequest]] = {
    "allpairs": AllPairsRequest,
    "wavefront": WavefrontRequest,
}
_OF_COMMAND = ("sites",)
"""Options that a document does not have."""


def read_matrix(
    file: Path, goal: Mapping[str, Any], sites: Path | None, out: Path | None
) -> AllPairsRequest | WavefrontRequest | None:
    """Return the matrix that a bag's document describes; None for a bag of tasks. Its files are
    relative to the document; ``goal``, ``sites``, ``out``: options of the command."""
    document = load_mapping(file)
    if "kind" not in document:
        return None
    kind = document["kind"]
    if kind not in KINDS:
        names = ", ".join(KINDS)
        raise InputError(f"unknown kind '{kind}'", where=str(file), fix=f"choose one of {names}")
    request = _make_request(KINDS[kind], {k: v for k, v in document.items() if k != "kind"}, file)
    folder = file.resolve().parent
    matrix = request.matrix or Path(file.stem).with_suffix(".matrix")
    changes = {"sites": sites, "matrix": folder / matrix, **goal}
    return replace(request, **(changes if out is None else {**changes, "out": out}))


def _make_request(
    of: type[AllPairsRequest] | type[WavefrontRequest], document: Mapping[str, Any], file: Path
) -> AllPairsRequest | WavefrontRequest:
    fields: dict[str, Any] = {
        field.name: (field.type, ... if field.is_required else field.default)
        for field in describe_fields(of)
        if field.name not in _OF_COMMAND
    }
    model = create_model(of.__name__, __base__=Document, **fields)
    if isinstance(document.get("function"), str):  # a program without arguments
        document = {**document, "function": (document["function"],)}
    fields = validate(model, document, str(file)).model_dump(exclude_unset=True)
    folder = file.resolve().parent
    for name, value in fields.items():
        if isinstance(value, Path):
            fields[name] = folder / value
        elif name == "inputs":
            fields[name] = tuple(folder / path for path in value)
        elif name == "function" and value and "/" in value[0]:
            # a name without a slash may be that of a program in PATH, which is searched later
            fields[name] = (str(folder / value[0]), *value[1:])
    try:
        return of(**fields)
    except InputError as error:
        raise error.within(str(file)) from None
