"""``docs/reference.md``: each action with its options, as every interface names them."""

from __future__ import annotations

from scripts.interfaces.commands import fields_of, flags_of
from scripts.interfaces.registry import COMMAND_MODULES, Command
from vgrads.kernel.units import format_duration
from vgrads.operations.fields import FieldDescription, describe_fields

_HEAD = (
    "# Reference\n\nEach action with its options. A command, a Python function and a request to a "
    "service are made of the same description, so an option means the same in all of them. Python "
    "and REST leave out `--` and write `_` for `-`; a duration is written `2h` at the command line "
    "and in Python, and in seconds, with `_s` after its name, in REST. This page is generated: "
    "`make interfaces`.\n"
)


def render_reference() -> str:
    """Return the page."""
    commands = [command for module in COMMAND_MODULES.values() for command in module]
    return _HEAD + "".join(map(_section, commands))


def _section(command: Command) -> str:
    line = " ".join((command.request.__doc__ or "").split())
    lines = ["", f"## vgrads {command.words}", "", line, ""]
    lines += ["| option | default | meaning |", "| --- | --- | --- |"]
    output = {field.name for field in describe_fields(command.output)}
    lines += [_row(field) for field in fields_of(command) if field.name not in output]
    lines += [_row(field) for field in fields_of(command) if field.name in output]
    lines += ["", *(f"    vgrads {example}" for example in command.examples)]
    return "\n".join(lines).rstrip() + "\n"


def _row(field: FieldDescription) -> str:
    flags = [field.flag] if field.shown.argument else flags_of(field)
    names = " ".join(f"`{flag}`" for flag in flags)
    return f"| {names} | {_default(field)} | {_cell(field)} |"


def _default(field: FieldDescription) -> str:
    if field.is_required:
        return "required"
    if field.default is True:
        return "on"
    if field.default is None or field.default is False or field.default in ("", ()):
        return ""
    if field.form == "duration":
        return format_duration(field.default)
    return f"{field.default:g}" if isinstance(field.default, float) else str(field.default)


def _cell(field: FieldDescription) -> str:
    text = field.about.help.replace("|", "\\|")
    unit = f" Unit: {field.about.unit}." if field.about.unit else ""
    return text + unit
