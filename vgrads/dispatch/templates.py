"""Templates of commands and file names in a bag: what is wrong with them, and the right text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import Formatter

from vgrads.bags.bag import RAW, TASK, split_template
from vgrads.kernel.errors import InputError

PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The name of a parameter."""


def check_template(text: str, names: Sequence[str], where: str) -> None:
    """Raise InputError, with the right text, for a template with other parameters than these."""
    try:
        parts = split_template(text)
    except ValueError as error:
        raise InputError(
            f"is not a valid template: {error}",
            where=where,
            fix=_advise_doubled_braces(text, names),
        ) from error
    for _, name, _ in parts:
        if name and not PARAMETER.fullmatch(name):
            raise InputError(
                f"'{{{name}}}' names no parameter",
                where=where,
                fix=_advise_doubled_braces(text, names),
            )
        if name and name not in (*names, TASK):
            choices = ", ".join((*names, TASK))
            raise InputError(
                f"names the parameter '{name}', which is not given",
                where=where,
                fix=f"known: {choices}; a literal brace is written twice: {{{{ or }}}}",
            )
    if any(form not in ("", None, RAW) for _, _, form, _ in Formatter().parse(text)):
        raise InputError("'{name:form}' accepts only the form 'raw'", where=where)


def _advise_doubled_braces(text: str, names: Sequence[str]) -> str:
    """Return the advice to double the braces of a template that are no parameter's."""
    own = "|".join(map(re.escape, (*names, TASK)))
    unchanged = rf"\{{\{{|\}}\}}|\{{(?:{own})(?::{RAW})?\}}"
    pieces = re.split(f"({unchanged})", text)
    right = "".join(
        piece if at % 2 else re.sub(r"([{}])", r"\1\1", piece) for at, piece in enumerate(pieces)
    )
    return f"double the braces that are no parameter's: {right}"
