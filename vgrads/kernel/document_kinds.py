"""Kinds of documents that users write, told apart by a key that only one kind has."""

from __future__ import annotations

from collections.abc import Container, Iterable

from vgrads.kernel.errors import InputError

_KINDS = (
    ("a pool", ("max_workers", "distribution"), "vgrads pool run FILE"),
    ("a workflow set", ("workflows",), "vgrads plan FILE"),
    ("a description of sites", ("site",), "--sites FILE"),
    ("a bag", ("command", "commands", "commands_file"), "vgrads bags run FILE"),
)
"""Each kind, its keys, and where such a file is expected."""


def refuse_other_kind(fields: Container[str], document: object, where: str) -> None:
    """Raise InputError if a document that should have these fields is of another kind."""
    expected, _ = _find_kind(fields)
    actual, use = _find_kind(document) if isinstance(document, dict) else ("", "")
    if (
        expected
        and actual
        and actual != expected
        and _find_kind(_count_common_fields(fields, document))[0] == ""
    ):
        raise InputError(f"is {actual}, not {expected}", where=where, fix=f"use it with '{use}'")


def _count_common_fields(fields: Container[str], document: object) -> list[str]:
    return [key for key in document if key in fields] if isinstance(document, Iterable) else []


def _find_kind(keys: Container[str]) -> tuple[str, str]:
    """Return the kind that has one of these keys, and where it is expected; empty if none has."""
    return next(
        ((kind, use) for kind, own, use in _KINDS if any(key in keys for key in own)), ("", "")
    )
