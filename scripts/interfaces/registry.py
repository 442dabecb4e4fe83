"""Which actions each interface has: a request, and what answers it there."""

from __future__ import annotations

from dataclasses import dataclass, field

from vgrads.operations.plans import requests as plans
from vgrads.portal.cli.plans.outputs import PlanOutput, RunOutput


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command: its ``words`` (``bags run``), its request and output (classes of described
    fields), and ``run``, ``module:function``, which takes both and returns an exit code.

    ``first``: fields in this order before all others; ``without``: fields that it does not have.
    """

    words: str
    request: type
    output: type
    run: str
    examples: tuple[str, ...] = ()
    help: str = ""
    first: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    app: str = "app"
    module_of_app: str = "vgrads.portal.cli.options"
    hidden: bool = False

    @property
    def function(self) -> str:
        """The name of the generated function."""
        return self.words.replace(" ", "_").replace("-", "_")


_SET_FIRST = ("set_file", "deadline", "inputs", "targets", "config", "sites", "at", "seed")
COMMAND_MODULES: dict[str, tuple[Command, ...]] = {
    "plans": (
        Command(
            words="plan",
            request=plans.PlanRequest,
            output=PlanOutput,
            run="vgrads.portal.cli.plans.plan_now:plan_now",
            examples=(
                "plan lead.yaml --sites sites.toml --gantt plan.html",
                "plan Snakefile --deadline 4h",
            ),
            first=_SET_FIRST,
        ),
        Command(
            words="run",
            request=plans.RunRequest,
            output=RunOutput,
            run="vgrads.portal.cli.plans.running:plan_and_run",
            examples=("run data/local/local.yaml --gantt run.html",),
            first=_SET_FIRST,
        ),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function of ``vgrads``: parameters that only Python has, before (``leading``) and after
    (``trailing``) those of its requests, each as ``(declaration, meaning)``; ``positional``: fields
    that may be given by position; ``run``: what it calls, with the parameters of its own and the
    requests by name; ``doc``: its first line; ``example``: a doctest."""

    name: str
    requests: dict[str, type]
    result: str
    run: str
    doc: str
    leading: tuple[tuple[str, str], ...] = ()
    trailing: tuple[tuple[str, str], ...] = ()
    positional: tuple[str, ...] = ()
    notes: str = ""
    example: str = ""
    needs: tuple[str, ...] = field(default=())


FUNCTION_MODULES: dict[str, tuple[Function, ...]] = {
    "plans": (
        Function(
            name="plan",
            requests={"changes": plans.SetFileOptions, "options": plans.PlanningOptions},
            result="PlanResult",
            run="vgrads.interface.plans:plan_source",
            doc="What can be promised for a workflow set?",
            leading=(
                (
                    "source: SetSource",
                    "a set of :func:`vgrads.read_set`, or what that function reads",
                ),
                (
                    "sites: Sites | None = None",
                    'a TOML file, a mapping with its fields, or ``"here"`` for this machine; by '
                    "default the file that the set names, else the sites that come with vgrads",
                ),
            ),
            positional=("at", "seed"),
            trailing=(
                (
                    "earlier: Sequence[FileName] = ()",
                    "folders of earlier runs; tasks that are up to date there are not planned",
                ),
            ),
            notes="A set that cannot be promised gives a result with ``feasible`` False.",
            example=(
                ">>> import vgrads\n"
                ">>> from vgrads.api.config import embedded_data\n"
                '>>> result = vgrads.plan(embedded_data() / "lead.yaml")\n'
                ">>> result.feasible, result.needed, result.promise.probability > 0.9\n"
                "(True, 1, True)"
            ),
            needs=(
                "collections.abc:Sequence",
                "vgrads.interface.arguments:FileName",
                "vgrads.interface.catalogs:Sites",
                "vgrads.interface.plans:PlanResult",
                "vgrads.interface.plans:SetSource",
            ),
        ),
        Function(
            name="run",
            requests={
                "execution": plans.ExecutionOptions,
                "changes": plans.SetFileOptions,
                "options": plans.PlanningOptions,
            },
            result="RunResult",
            run="vgrads.interface.runs:run_source",
            doc="Run a plan, or plan a set and run it, to the end.",
            leading=(
                (
                    "source: PlanResult | SetSource",
                    "a result of :func:`vgrads.plan`, or a set; only with a set the options of "
                    ":func:`vgrads.plan`",
                ),
                (
                    "folder: FileName | None = None",
                    "for the files of the tasks; by default a new one in the data folder of vgrads",
                ),
            ),
            positional=("speed",),
            trailing=(
                ("sites: Sites | None = None", "of the set, as for :func:`vgrads.plan`"),
                (
                    "on_event: EventCallback | None = None",
                    "called with each event as a mapping; an exception in it ends the run",
                ),
            ),
            notes=(
                "The run ends with this process: Ctrl-C or an exception releases its slots. A run "
                "that outlives the process belongs to a service (:class:`vgrads.Client`). "
                "InfeasibleError where there is no plan."
            ),
            example=(
                ">>> import vgrads\n"
                ">>> from vgrads.api.config import embedded_data\n"
                '>>> result = vgrads.run(vgrads.plan(embedded_data() / "lead.yaml"))\n'
                ">>> result.verdict, result.needed, result.in_time\n"
                "('kept', 1, 1)"
            ),
            needs=(
                "vgrads.interface.arguments:FileName",
                "vgrads.interface.catalogs:Sites",
                "vgrads.interface.plans:PlanResult",
                "vgrads.interface.plans:SetSource",
                "vgrads.interface.run_journal:EventCallback",
                "vgrads.interface.run_results:RunResult",
            ),
        ),
    ),
}


@dataclass(frozen=True, kw_only=True)
class ClientMethod:
    """A method of the client that sends the fields of a request as parameters of a query.
    ``more``: its parameters that are sent otherwise; ``before``: a statement; ``value``: what of
    the ``answer`` is returned."""

    name: str
    request: type
    verb: str
    path: str
    doc: str
    leading: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    before: str = ""
    result: str = "dict[str, Any]"
    value: str = "answer"


CLIENT_METHODS = (
    ClientMethod(
        name="submit",
        request=plans.PlanningOptions,
        verb="POST",
        path="/v1/workflow-sets",
        doc="Submit a workflow set; return its id. With the same ``key`` it is submitted once, for "
        "any number of calls.",
        leading=("document: Mapping[str, Any]", 'key: str = ""'),
        more=("document", "key"),
        result="str",
        value='str(answer["id"])',
    ),
    ClientMethod(
        name="run",
        request=plans.StoredRunOptions,
        verb="POST",
        path="/v1/workflow-sets/{set_id}/run",
        doc="Run a set, once it is planned; for an outside engine see :meth:`permit` and "
        ":meth:`end`.",
        leading=("set_id: str", 'key: str = ""'),
        more=("key",),
        before="self._await_plan(set_id)",
        result="RunHandle",
        value='RunHandle(set_id, str(answer["run"]))',
    ),
)
