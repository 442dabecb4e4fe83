"""Bags of tasks: many short commands without a plan, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vgrads.api.bags.sites import check_places, select_usable_sites
from vgrads.api.config import THIS_MACHINE
from vgrads.dispatch.document import BagDocument, build_bag, load_bag
from vgrads.interface.arguments import Duration, FileName, named_arguments, path_of, seconds_of
from vgrads.interface.bag_runs import BagOptions, BagResult, StatusCallback, run_bag
from vgrads.interface.catalogs import Sites, catalog_of
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count

Values = Sequence[str | int | float] | Mapping[str, Any] | range
"""The values of a parameter: a sequence, a range, or ``{"lines": "file.txt"}``."""


class Bag:
    """A bag of tasks: one command for each combination of parameters, or a list of commands.

    >>> import vgrads
    >>> bag = vgrads.Bag(command="echo $(({x} * {x}))", parameters={"x": range(1, 4)})
    >>> bag
    Bag 'bag': 3 tasks
      echo $(({x} * {x}))
    >>> result = bag.run()
    >>> result.state, result.done, result.printed()
    ('done', 3, {0: '1\\n', 1: '4\\n', 2: '9\\n'})
    """

    @named_arguments()
    def __init__(  # noqa: PLR0913 the fields of a bag
        self,
        *,
        command: str | None = None,
        parameters: Mapping[str, Values] | None = None,
        commands: Sequence[str] | None = None,
        name: str = "bag",
        inputs: Sequence[str] = (),
        outputs: Sequence[str] = (),
        procs: int = 1,
        memory_mib: float = 0.0,
        runtime: Duration | None = None,
        limit: Duration | None = None,
        retries: int = 2,
        env: Mapping[str, str] | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """A bag; InputError for what does not fit together.

        ``command`` with ``parameters`` (its ``{name}`` are filled in, quoted for the shell), or
        ``commands``. ``inputs`` and ``outputs``: files of each task, relative to the working
        folder; outputs come back. ``procs`` and ``memory_mib``: of each task. ``runtime``: expected
        time of a task. ``limit``: after which it is ended. ``retries``: after failures. ``env``:
        variables. ``fields``: further fields of a bag's document (docs/dispatch.md), such as
        ``policy`` or ``copies`` (replicas).
        """
        document: dict[str, Any] = {
            "name": name,
            "command": command,
            "commands": None if commands is None else tuple(commands),
            "parameters": {key: _list_values(value) for key, value in (parameters or {}).items()},
            "inputs": tuple(inputs),
            "outputs": tuple(outputs),
            "procs": procs,
            "memory_mib": memory_mib,
            "runtime_s": None if runtime is None else seconds_of(runtime, "runtime"),
            "limit": None if limit is None else seconds_of(limit, "limit"),
            "retries": retries,
            "env": dict(env or {}),
            **(fields or {}),
        }
        self._take(validate(BagDocument, document, f"bag '{name}'"), Path.cwd())

    @classmethod
    @named_arguments()
    def read(cls, path: FileName) -> Bag:
        """The bag in a YAML or JSON file (docs/dispatch.md); its files are relative to that."""
        file = path_of(path)
        document, _ = load_bag(file)
        bag = cls.__new__(cls)
        bag._take(document, file.resolve().parent)
        return bag

    def _take(self, document: BagDocument, folder: Path) -> None:
        self.document, self.folder = document, folder
        built = build_bag(document, folder)
        self.tasks, self.notes = len(built.commands), built.notes

    @property
    def name(self) -> str:
        """The name of the bag."""
        return self.document.name

    def __len__(self) -> int:
        return self.tasks

    def __repr__(self) -> str:
        first = self.document.command or next(iter(self.document.commands or ()), "")
        text = first or f"commands of {self.document.commands_file}"
        lines = (f"Bag '{self.name}': {format_count(self.tasks, 'task')}", text, *self.notes)
        return "\n  ".join(lines)

    @named_arguments()
    def run(
        self,
        sites: Sites = THIS_MACHINE,
        folder: FileName | None = None,
        *,
        policy: str = "fair-share",
        on_status: StatusCallback | None = None,
        rerun: bool = False,
    ) -> BagResult:
        """Run all tasks, except those that an earlier run of a bag of this name has done: with the
        same command, environment and inputs, and unchanged outputs. The bag ends with this process,
        and Ctrl-C releases its nodes.

        ``sites``: this machine by default; simulated sites run in virtual time. ``folder``: for the
        results; by default a new one in the data folder of vgrads. The same bag in the same folder
        goes on where it ended. ``policy``: the ordering of bags, as for ``vgrads bags run``.
        ``on_status``: called about once a second, in another thread, with the counts of the bag.
        ``rerun``: tasks are run also where an earlier run, in the data folder of vgrads, has done
        them.
        """
        catalog = select_usable_sites(catalog_of(sites), self.document)
        check_places(catalog, self.document)
        chosen = None if folder is None else path_of(folder).absolute()
        how = BagOptions(policy, on_status, rerun)
        return run_bag(self.document, self.folder, catalog, chosen, how)


def _list_values(values: Values) -> Any:
    if isinstance(values, range):
        return {"range": [values.start, values.stop, values.step]}
    # for Python a string is a sequence too, of its letters
    if isinstance(values, str):
        raise InputError("is a string, not a list", where="parameters", fix="give a list of values")
    return dict(values) if isinstance(values, Mapping) else tuple(values)
