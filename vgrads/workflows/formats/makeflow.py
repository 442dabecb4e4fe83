"""Makeflow files: rules ``outputs : inputs`` with a command, variables, categories, ``LOCAL``.

Structure only: run times come from the set's ``runtimes``, by category or by the name of the
program. A file written by one rule and read by another is an edge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.runtimes import Runtimes, runtime_of
from vgrads.workflows.task import Task

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*(\+?=)\s*(.*)$")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|\((\w+)\)|([A-Za-z_]\w*))")
_CATEGORY = re.compile(r'\s*\.MAKEFLOW\s+CATEGORY\s+"?([^"\s]+)"?')


@dataclass(slots=True)
class _Rule:
    line: int
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    category: str
    command: str = ""


def read_makeflow(text: str, where: str, runtimes: Runtimes) -> Workflow:
    """Read the workflow of a Makeflow file; InputError names the wrong line."""
    rules = list(_rules(text, where))
    makers = {
        output: f"rule{number}" for number, rule in enumerate(rules, 1) for output in rule.outputs
    }
    tasks = []
    for number, rule in enumerate(rules, 1):
        words = rule.command.split()
        program = PurePath(words[0]).name if words else ""
        parents = [makers[name] for name in rule.inputs if name in makers]
        tasks.append(
            Task(
                id=f"rule{number}",
                runtime_s=runtime_of(runtimes, (rule.category, program)),
                kind=rule.category or program,
                parents=tuple(dict.fromkeys(parents)),
                command=rule.command,
                inputs=rule.inputs,
                outputs=rule.outputs,
            )
        )
    return make_workflow(PurePath(where).stem, tasks, where=where)


def _rules(text: str, where: str) -> Iterator[_Rule]:
    variables: dict[str, str] = {}
    category, rule = "", None
    for number, line in _joined(text):
        place = f"{where}: line {number}"
        if line[:1] in (" ", "\t") and line.strip():
            if rule is None:
                raise InputError("a command does not belong to a rule", where=place)
            rule.command = (rule.command + " && " if rule.command else "") + _command(
                line, variables
            )
            continue
        if rule is not None:
            yield _whole(rule, where)
            rule = None
        match, assigned = _CATEGORY.match(line), _ASSIGNMENT.match(line)
        if match:
            category = match[1]
        elif assigned:
            _assign(variables, assigned)
            category = variables["CATEGORY"].strip('"') if assigned[1] == "CATEGORY" else category
        elif line.strip() and not line.lstrip().startswith((".", "export")):
            rule = _head(number, _expand(line, variables), category, place)
    if rule is not None:
        yield _whole(rule, where)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Return lines without comments, continued ones joined, with the number of the first."""
    retained, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        bare = "" if line.lstrip().startswith("#") else line
        first = first or number
        if bare.endswith("\\"):
            retained += bare[:-1] + " "
            continue
        yield first, retained + bare
        retained, first = "", 0
    if retained:
        yield first, retained


def _head(number: int, line: str, category: str, place: str) -> _Rule:
    outputs, colon, inputs = line.partition(":")
    if not colon or not outputs.split():
        raise InputError("is neither a rule (outputs : inputs) nor an assignment", where=place)
    return _Rule(number, _names(outputs), _names(inputs), category)


def _whole(rule: _Rule, where: str) -> _Rule:
    if not rule.command:
        raise InputError("the rule has no command", where=f"{where}: line {rule.line}")
    return rule


def _names(text: str) -> tuple[str, ...]:
    """Return the files of a rule; ``local->remote`` renames have their local name."""
    return tuple(dict.fromkeys(word.split("->")[0] for word in text.split()))


def _command(line: str, variables: dict[str, str]) -> str:
    return _expand(line.strip().removeprefix("LOCAL ").strip(), variables)


def _assign(variables: dict[str, str], match: re.Match[str]) -> None:
    name, operator, value = match[1], match[2], _expand(match[3], variables)
    variables[name] = f"{variables.get(name, '')} {value}".strip() if operator == "+=" else value


def _expand(text: str, variables: dict[str, str]) -> str:
    """Replace known variables; unknown ones are left to the shell."""
    return _VARIABLE.sub(lambda m: variables.get(m[1] or m[2] or m[3], m[0]), text)
