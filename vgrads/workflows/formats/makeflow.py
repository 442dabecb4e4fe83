"""Makeflow files: rules ``outputs : inputs`` with a command, variables, categories, directives.

Run times come from the set's ``runtimes``, by category or by the name of the program, otherwise
from ``WALL_TIME``. docs/formats.md has what each directive means here.
https://cctools.readthedocs.io/en/latest/makeflow/
"""

from __future__ import annotations

import re
from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.makeflow_rules import MakeflowRule, read_rules
from vgrads.workflows.formats.reading import Reading
from vgrads.workflows.runtimes import Runtimes
from vgrads.workflows.task import Task

_ASSIGNMENT = re.compile(r"@?\s*([A-Za-z_][\w.]*)\s*(\+?=)(.*)$", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|\((\w+)\)|([A-Za-z_]\w*))")
_TOKEN = re.compile(
    r"""(?P<gap>\s+)|(?P<mark>:|->)|\\(?P<escaped>.)|'(?P<raw>[^']*)'|"(?P<quoted>[^"]*)\""""
    r"""|(?P<variable>\$(?:\{\w+\}|\(\w+\)|[A-Za-z_]\w*))|(?P<comment>\#.*)|(?P<open>['"])"""
    r"""|(?P<plain>[^\s:'"\\$#-]+|.)""",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"\.([A-Z]+)\s+(\S+)\s+(.*)$")
_SIZE = re.compile(r"(\d+(?:\.\d*)?)\s*([KMGT]?)B?$", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_RESOURCES = {
    "CORES": "cores",
    "MEMORY": "memory",
    "DISK": "disk",
    "GPUS": "gpus",
    "WALL_TIME": "wall-time",
    "MPI_PROCESSES": "mpi-processes",
}
_NOT_HONOURED = ("BATCH_OPTIONS", "MODE", "SPEC")
_CATEGORY = ("CATEGORY", "SYMBOL")
_COLON, _ARROW = ":", "->"
_MOST_SUBSTITUTIONS = 10_000
_MIB = 2**20


@dataclass(slots=True)
class _Draft:
    """A rule until its command is complete, with its own variables."""

    rule: MakeflowRule
    own: dict[str, str] = field(default_factory=dict)
    local: bool = False


def read_makeflow(text: str, runtimes: Runtimes, reading: Reading) -> Workflow:
    """Read the workflow of a Makeflow file; InputError names the wrong line."""
    where = str(reading.path)
    reader = _MakeflowReader(where, "", runtimes, reading)
    return make_workflow(PurePath(where).stem, reader.read(text), reader.file_mib, where)


class _MakeflowReader:
    """Reads one file. Variables outside rules belong to the category in which they are set."""

    def __init__(self, where: str, prefix: str, runtimes: Runtimes, reading: Reading) -> None:
        self._where, self._prefix = where, prefix
        self._runtimes, self._reading = runtimes, reading
        self._variables: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._everywhere: dict[str, str] = {}
        self._exported: dict[str, None] = {}
        self._category = ""
        self._drafts: list[_Draft] = []
        self.file_mib: dict[str, float] = {}

    def read(self, text: str) -> list[Task]:
        """Return the tasks of a file."""
        for number, line in _join(text):
            self._read_line(line, f"{self._where}: line {number}")
        self._refuse_open()
        return read_rules([draft.rule for draft in self._drafts], self._runtimes, self._reading)

    def _read_line(self, line: str, place: str) -> None:
        indented = line[:1] in (" ", "\t")
        bare = line.strip()
        open_rule = (
            self._drafts[-1] if self._drafts and not _is_complete(self._drafts[-1]) else None
        )
        if not bare or bare.startswith("#"):
            return
        if indented and not bare.startswith("@"):
            if not self._drafts:
                raise InputError("a command does not belong to a rule", where=place)
            self._add_command(self._drafts[-1], bare, place)
        elif _DIRECTIVE.match(bare):
            self._direct(bare, open_rule, place)
        elif re.match(r"export\s", bare):
            self._export(bare.removeprefix("export").strip(), place)
        elif _is_rule(bare):
            self._refuse_open()
            self._begin(bare, place)
        else:
            self._assign(bare, open_rule, place)

    def _refuse_open(self) -> None:
        """Raise InputError if the last rule has no command."""
        if self._drafts and not _is_complete(self._drafts[-1]):
            raise InputError("the rule has no command", where=self._drafts[-1].rule.place)

    def _begin(self, line: str, place: str) -> None:
        words = list(_split_files(line, self._lookup(None), place))
        if _COLON not in words:
            raise InputError("is neither a rule (outputs : inputs) nor an assignment", where=place)
        middle = words.index(_COLON)
        name = f"{self._prefix}rule{len(self._drafts) + 1}"
        rule = MakeflowRule(
            name=name,
            place=place,
            category=self._category,
            outputs=tuple(self._names(words[:middle], place)),
            inputs=tuple(self._names([w for w in words[middle + 1 :] if w != _COLON], place)),
        )
        self._drafts.append(_Draft(rule))
        self._reading.limit(len(self._drafts), 0, place)

    def _names(self, words: list[str], place: str) -> Iterator[str]:
        """Return the files of a rule; ``local->remote`` renames have their local name."""
        stored: dict[str, None] = {}
        after_arrow = False
        for word in words:
            if word == _ARROW:
                if not stored:
                    raise InputError("'->' follows no file", where=place)
                self._reading.count("file", "are", "not renamed for the task")
            elif not after_arrow:
                stored[word] = None
            after_arrow = word == _ARROW
        yield from stored

    def _add_command(self, draft: _Draft, line: str, place: str) -> None:
        command = _expand_value(line, self._lookup(draft)).strip()
        if not command:
            return
        modifiers = re.match(r"((?:LOCAL|MAKEFLOW)\s+)+", command)
        words = modifiers[0].split() if modifiers else []
        command = command[len(modifiers[0]) :] if modifiers else command
        draft.local = draft.local or "LOCAL" in words
        if not _is_complete(draft):
            self._complete(draft)
        if "MAKEFLOW" in words:
            draft.rule.nested = self._follow(draft, command, place)
        elif draft.rule.nested is not None:
            raise InputError("a rule is either a command or a workflow", where=place)
        else:
            joined = f"{draft.rule.command} && {command}"
            draft.rule.command = joined if draft.rule.command else command

    def _follow(self, draft: _Draft, words: str, place: str) -> list[Task]:
        """Read the Makeflow that a rule runs."""
        name, *folder = words.split()
        if folder not in ([], ["."], ["./"]):
            raise InputError(f"runs {name} in another folder: '{' '.join(folder)}'", where=place)
        path = self._reading.path.parent / name
        with self._reading.follow(path, place) as text:
            reader = _MakeflowReader(
                str(path), f"{draft.rule.name}+", self._runtimes, self._reading
            )
            tasks = reader.read(text)
        if not tasks:
            raise InputError(f"runs {name}, which has no rules", where=place)
        self.file_mib |= reader.file_mib
        return tasks

    def _direct(self, line: str, draft: _Draft | None, place: str) -> None:
        match = _DIRECTIVE.match(line)
        assert match is not None
        kind, name, value = match[1], match[2], _unquote(_expand_value(match[3], {}))
        if kind == "SIZE":
            size = _SIZE.match(value)
            if size is None:
                raise InputError(f"'{value}' is not a size", where=place)
            self.file_mib[name] = float(size[1]) * 1024 ** _POWERS[size[2].upper()] / _MIB
        elif (kind == "MAKEFLOW" and name in (*_RESOURCES, *_CATEGORY, "MODE")) or (
            kind == "UMBRELLA" and name == "SPEC"
        ):
            self._set(name, value, draft, place)
        else:
            raise InputError(f"'.{kind} {name}' is not a known directive", where=place)

    def _export(self, text: str, place: str) -> None:
        if "=" in text:
            self._assign(text, None, place)
            text = text.partition("=")[0].strip().removesuffix("+")
        self._exported |= dict.fromkeys(text.split())

    def _assign(self, line: str, draft: _Draft | None, place: str) -> None:
        match = _ASSIGNMENT.match(line)
        if match is None:
            raise InputError("is neither a rule (outputs : inputs) nor an assignment", where=place)
        lookup = self._lookup(draft)
        name, value = match[1], _expand_value(match[3].strip(), lookup).strip()
        if match[2] == "+=":
            value = f"{lookup.get(name, '')} {value}".strip()
        self._set(name, value, draft, place)

    def _set(self, name: str, value: str, draft: _Draft | None, place: str) -> None:
        if name in _RESOURCES:
            _parse_number(name, value, place)
        if name in _NOT_HONOURED:
            self._reading.list("not honoured", name)
        if draft is not None:
            draft.own[name] = value
            if name in _CATEGORY:
                draft.rule.category = _unquote(value)
        elif name in _CATEGORY:
            self._category = _unquote(value)
            self._variables[""][name] = value
        else:
            self._variables[self._category][name] = value
            self._everywhere[name] = value

    def _lookup(self, draft: _Draft | None) -> Mapping[str, str]:
        """Return the variables of a rule: its own, those of its category, those of all."""
        category = self._category if draft is None else draft.rule.category
        own = {} if draft is None else draft.own
        of_category, default = self._variables[category], self._variables[""]
        return ChainMap(own, of_category, default, self._everywhere)

    def _complete(self, draft: _Draft) -> None:
        """Set what a rule's variables say of it, by their values where its command is."""
        rule = draft.rule
        # without what was set in other categories, although its command may name that
        variables = ChainMap(draft.own, self._variables[rule.category], self._variables[""])
        rule.resources = {
            _RESOURCES[name]: _parse_number(name, variables[name], rule.place)
            for name in _RESOURCES
            if name in variables
        }
        rule.env = {n: _unquote(variables[n]) for n in self._exported if n in variables}
        if draft.local or _unquote(variables.get("BATCH_LOCAL", "")).lower() in (
            "true",
            "yes",
            "1",
        ):
            self._reading.count("LOCAL rule", "are", "placed as any other")


def _join(text: str) -> Iterator[tuple[int, str]]:
    """Return lines, continued ones joined, with the number of the first."""
    pending, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first if pending else number
        pending += line
        comment = pending.lstrip().startswith("#")
        # an even number of backslashes at the end are escaped ones, which continue nothing
        if not comment and (len(line) - len(line.rstrip("\\"))) % 2:
            pending = pending[:-1] + " "
            continue
        yield first, pending
        pending = ""
    if pending:
        yield first, pending


def _is_complete(draft: _Draft) -> bool:
    return bool(draft.rule.command) or draft.rule.nested is not None


def _is_rule(line: str) -> bool:
    """Return whether a colon outside quotes precedes any equals sign."""
    quote = ""
    for before, sign in zip(" " + line, line, strict=False):
        if sign in "'\"" and before != "\\" and quote in ("", sign):
            quote = "" if quote else sign
        elif not quote and sign in ":=" and before != "\\":
            return sign == ":"
    return False


def _expand_value(text: str, variables: Mapping[str, str]) -> str:
    """Return a command or value: known variables replaced, except within single quotes (unknown
    ones are left to the shell), one level of backslashes and comments removed; quotes stay."""
    parts, quote, at = [], "", 0
    while at < len(text):
        sign = text[at]
        variable = _VARIABLE.match(text, at) if sign == "$" and quote != "'" else None
        if variable:
            parts.append(variables.get(variable[variable.lastindex or 0], variable[0]))
            at = variable.end()
            continue
        if sign == "#" and not quote:
            break
        if sign == "\\" and at + 1 < len(text):
            at += 1
        elif sign in "'\"" and quote in ("", sign):
            quote = "" if quote else sign
        parts.append(text[at])
        at += 1
    return "".join(parts)


def _split_files(text: str, variables: Mapping[str, str], place: str) -> Iterator[str]:
    """Return the files of a rule, with its colons and arrows; quotes hold a name together. The
    value of a variable outside quotes may be several names."""
    word, at, left = "", 0, _MOST_SUBSTITUTIONS
    while at < len(text) and (token := _TOKEN.match(text, at)):
        at, kind = token.end(), token.lastgroup
        if kind == "variable":
            # a variable may be defined by itself: after so many substitutions it counts as
            # undefined
            left -= 1
            text, at = _find_value(token[0], variables if left else {}, place) + text[at:], 0
        elif kind in ("gap", "mark"):
            if word:
                yield word
            if kind == "mark":
                yield token[0]
            word = ""
        elif kind == "comment":
            break
        elif kind == "open":
            raise InputError(f"has no closing {token[0]}", where=place)
        elif kind == "quoted":
            word += _VARIABLE.sub(
                lambda m: _unquote(_find_value(m[0], variables, place)), token["quoted"]
            )
        else:
            word += token[kind or 0]
    if word:
        yield word


def _find_value(variable: str, variables: Mapping[str, str], place: str) -> str:
    name = variable.strip("${}()")
    if name not in variables:
        raise InputError(
            f"the variable '{name}' is not defined, or by itself",
            where=place,
            fix=f"set it before the rule: {name}=…",
        )
    return variables[name]


def _unquote(text: str) -> str:
    """Remove the quotes around a value."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _parse_number(name: str, value: str, place: str) -> float:
    try:
        number = float(_unquote(value))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise InputError(f"{name} '{value}' is not a number", where=place)
    return number
