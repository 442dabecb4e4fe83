"""Which actions each interface has: a request, and what answers it there."""

from __future__ import annotations

from dataclasses import dataclass, field

from vgrads.operations import administration, alarms, questions, sites
from vgrads.operations.bags import matrix_requests as matrices
from vgrads.operations.bags import requests as bags
from vgrads.operations.offers import OffersRequest
from vgrads.operations.plans import requests as plans
from vgrads.operations.pools import requests as pools
from vgrads.operations.runs import requests as runs
from vgrads.operations.sizes import SizeRequest
from vgrads.portal.cli.plans.outputs import ChartOutput, PlanOutput, RunOutput
from vgrads.portal.cli.plans.size_commands import SizeOutput
from vgrads.portal.cli.queues.backtest_now import BacktestOutput
from vgrads.portal.cli.requests import CommandOutput, LinesOutput, NoOutput, TableOutput


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
    first: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    app: str = "app"
    module_of_app: str = "vgrads.portal.cli.options"
    hidden: bool = False

    @property
    def function(self) -> str:
        """The name of the generated function."""
        return self.words.replace(" ", "_").replace("-", "_")


_BAGS = "vgrads.portal.cli.bags.commands"
_POOLS = "vgrads.portal.cli.pools.commands"
_MATRICES = "vgrads.portal.cli.bags.matrix_commands"
_SITES = "vgrads.portal.cli.sites.commands"
_ADMIN = "vgrads.portal.cli.admin.commands"
_ALARMS = "vgrads.portal.cli.alarms.commands"
_VERBS = "vgrads.portal.cli.plans.run_commands"
_JOB_FIRST = ("history", "within_s", "start_by_s", "procs", "walltime_s", "probability")
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
    "runs": (
        Command(
            words="resume",
            request=runs.ResumeRequest,
            output=ChartOutput,
            run=f"{_VERBS}:resume",
            examples=("resume run-0123456789",),
        ),
        Command(
            words="retry",
            request=runs.RetryRunRequest,
            output=ChartOutput,
            run=f"{_VERBS}:retry",
            examples=("retry RUN", "retry RUN storm-1/wrf", "retry BAG 7"),
        ),
        Command(
            words="change",
            request=runs.ChangeRequest,
            output=CommandOutput,
            run=f"{_VERBS}:change",
            examples=("change run-0123456789 --deadline 2h --at-least 5",),
            first=("run", "deadline", "at_least", "budget", "probability"),
        ),
        Command(
            words="cancel",
            request=runs.CancelRunRequest,
            output=CommandOutput,
            run=f"{_VERBS}:cancel",
            examples=("cancel run-0123456789",),
        ),
        Command(
            words="archive",
            request=runs.ArchiveRequest,
            output=CommandOutput,
            run=f"{_VERBS}:archive",
            examples=("archive run-0123456789", "archive run-0123456789 --undo"),
        ),
        Command(
            words="status",
            request=runs.StatusRequest,
            output=TableOutput,
            run=f"{_VERBS}:status",
            examples=("status", "status run-0123456789"),
        ),
        Command(
            words="top",
            request=runs.TopRequest,
            output=TableOutput,
            run=f"{_VERBS}:top",
            examples=("top", "top --interval 10s"),
        ),
        Command(
            words="logs",
            request=runs.LogsRequest,
            output=TableOutput,
            run=f"{_VERBS}:logs",
            examples=("logs run-0123456789 wrf", "logs RUN -f"),
        ),
        Command(
            words="explain",
            request=runs.ExplainRequest,
            output=CommandOutput,
            run=f"{_VERBS}:explain",
            examples=("plan lead.yaml --json > p.json; vgrads explain p.json lead-1/wrf",),
        ),
        Command(
            words="gantt",
            request=runs.GanttRequest,
            output=NoOutput,
            run=f"{_VERBS}:draw",
            examples=("gantt run-0123456789 -o run.html",),
            hidden=True,
        ),
    ),
    "sites": (
        Command(
            words="sites list",
            request=sites.ListSitesRequest,
            output=TableOutput,
            run=f"{_SITES}:list_sites",
            examples=("sites list data/sites.toml",),
            app="sites_app",
            module_of_app="vgrads.portal.cli.sites.group",
        ),
        Command(
            words="sites show",
            request=sites.ShowSiteRequest,
            output=TableOutput,
            run=f"{_SITES}:show",
            examples=("sites show local",),
            app="sites_app",
            module_of_app="vgrads.portal.cli.sites.group",
        ),
        Command(
            words="sites reset",
            request=sites.ResetSiteRequest,
            output=CommandOutput,
            run=f"{_SITES}:reset",
            examples=("sites reset local",),
            app="sites_app",
            module_of_app="vgrads.portal.cli.sites.group",
        ),
        Command(
            words="sites check",
            request=sites.CheckSitesRequest,
            output=TableOutput,
            run=f"{_SITES}:check",
            examples=("sites check data/sites.toml",),
            app="sites_app",
            module_of_app="vgrads.portal.cli.sites.group",
        ),
        Command(
            words="sites add",
            request=sites.AddSitesRequest,
            output=NoOutput,
            run=f"{_SITES}:add",
            examples=("sites add mysites.toml",),
            app="sites_app",
            module_of_app="vgrads.portal.cli.sites.group",
        ),
        Command(
            words="sites remove",
            request=sites.RemoveSiteRequest,
            output=NoOutput,
            run=f"{_SITES}:remove",
            examples=("sites remove kittyhawk",),
            app="sites_app",
            module_of_app="vgrads.portal.cli.sites.group",
        ),
        Command(
            words="sites sweep",
            request=sites.SweepSitesRequest,
            output=TableOutput,
            run=f"{_SITES}:sweep",
            examples=("sites sweep sites.toml --yes",),
            app="sites_app",
            module_of_app="vgrads.portal.cli.sites.group",
        ),
        Command(
            words="sites queue",
            request=sites.SiteQueueRequest,
            output=TableOutput,
            run=f"{_SITES}:queue",
            examples=("sites queue cluster --procs 16 --walltime 2h",),
            app="sites_app",
            module_of_app="vgrads.portal.cli.sites.group",
        ),
        Command(
            words="sites offers",
            request=OffersRequest,
            output=ChartOutput,
            run="vgrads.portal.cli.sites.offer_text:offer_now",
            examples=("sites offers data/storm.grid --gantt offers.html",),
            app="sites_app",
            module_of_app="vgrads.portal.cli.sites.group",
        ),
        Command(
            words="sites collect",
            request=sites.CollectRequest,
            output=CommandOutput,
            run=f"{_SITES}:collect",
            examples=("sites collect cluster --since 90d",),
            app="sites_app",
            module_of_app="vgrads.portal.cli.sites.group",
        ),
        Command(
            words="sites open",
            request=sites.OpenSiteRequest,
            output=NoOutput,
            run=f"{_SITES}:open_site",
            examples=("sites open build ann",),
            app="sites_app",
            module_of_app="vgrads.portal.cli.sites.group",
        ),
    ),
    "administration": (
        Command(
            words="token create",
            request=administration.CreateTokenRequest,
            output=CommandOutput,
            run=f"{_ADMIN}:create_token",
            examples=("token create ann --scope submit --expires 90d",),
            app="token_app",
            module_of_app="vgrads.portal.cli.admin.group",
        ),
        Command(
            words="token list",
            request=administration.ListTokensRequest,
            output=TableOutput,
            run=f"{_ADMIN}:list_tokens",
            examples=("token list",),
            app="token_app",
            module_of_app="vgrads.portal.cli.admin.group",
        ),
        Command(
            words="token revoke",
            request=administration.RevokeTokenRequest,
            output=NoOutput,
            run=f"{_ADMIN}:revoke_token",
            examples=("token revoke tok-0123456789",),
            app="token_app",
            module_of_app="vgrads.portal.cli.admin.group",
        ),
        Command(
            words="db upgrade",
            request=administration.UpgradeRequest,
            output=NoOutput,
            run=f"{_ADMIN}:upgrade",
            examples=("db upgrade",),
            app="db_app",
            module_of_app="vgrads.portal.cli.admin.group",
        ),
        Command(
            words="db backup",
            request=administration.BackupRequest,
            output=NoOutput,
            run=f"{_ADMIN}:back_up_database",
            examples=("db backup vgrads-today.db",),
            app="db_app",
            module_of_app="vgrads.portal.cli.admin.group",
        ),
        Command(
            words="db prune",
            request=administration.PruneRequest,
            output=CommandOutput,
            run=f"{_ADMIN}:prune",
            examples=("db prune --keep 180d --history-keep 1000d",),
            app="db_app",
            module_of_app="vgrads.portal.cli.admin.group",
        ),
        Command(
            words="db audit",
            request=administration.AuditRequest,
            output=TableOutput,
            run=f"{_ADMIN}:audit",
            examples=("db audit --user ann",),
            app="db_app",
            module_of_app="vgrads.portal.cli.admin.group",
        ),
    ),
    "alarms": (
        Command(
            words="alarms add",
            request=alarms.AddTargetRequest,
            output=CommandOutput,
            run=f"{_ALARMS}:add_target",
            examples=("alarms add mail -",),
            app="alarms_app",
            module_of_app="vgrads.portal.cli.alarms.group",
        ),
        Command(
            words="alarms list",
            request=alarms.ListTargetsRequest,
            output=TableOutput,
            run=f"{_ALARMS}:list_targets",
            examples=("alarms list",),
            app="alarms_app",
            module_of_app="vgrads.portal.cli.alarms.group",
        ),
        Command(
            words="alarms rules",
            request=alarms.RulesRequest,
            output=CommandOutput,
            run=f"{_ALARMS}:show_or_set_rules",
            examples=("alarms rules", "alarms rules rules.yaml"),
            app="alarms_app",
            module_of_app="vgrads.portal.cli.alarms.group",
        ),
        Command(
            words="alarms acknowledge",
            request=alarms.AcknowledgeRequest,
            output=CommandOutput,
            run=f"{_ALARMS}:acknowledge",
            examples=("alarms acknowledge run-0123456789",),
            app="alarms_app",
            module_of_app="vgrads.portal.cli.alarms.group",
        ),
        Command(
            words="alarms remove",
            request=alarms.RemoveTargetRequest,
            output=NoOutput,
            run=f"{_ALARMS}:remove_target",
            examples=("alarms remove mail",),
            app="alarms_app",
            module_of_app="vgrads.portal.cli.alarms.group",
        ),
        Command(
            words="alarms test",
            request=alarms.TryTargetRequest,
            output=CommandOutput,
            run=f"{_ALARMS}:try_target",
            examples=("alarms test mail",),
            app="alarms_app",
            module_of_app="vgrads.portal.cli.alarms.group",
        ),
    ),
    "sizes": (
        Command(
            words="size",
            request=SizeRequest,
            output=SizeOutput,
            run="vgrads.portal.cli.plans.size_commands:size_now",
            examples=(
                "size data/lead.yaml --price 0.1 --billing 1h",
                "size --wavefront 1000 --cell 1s --dispatch 5s",
                "size bag.yaml --sites sites.toml --deadline 8h -p 0.95",
            ),
        ),
    ),
    "matrices": (
        Command(
            words="allpairs",
            request=matrices.AllPairsRequest,
            output=CommandOutput,
            run=f"{_MATRICES}:compute_matrix",
            examples=(
                "allpairs images/ images/ ./compare --symmetric -o results.txt",
                "allpairs a.list b.list --python compare.py:distance",
            ),
            first=("a", "b", "function"),
            hidden=True,
        ),
        Command(
            words="wavefront",
            request=matrices.WavefrontRequest,
            output=CommandOutput,
            run=f"{_MATRICES}:compute_matrix",
            examples=(
                "wavefront edges/ ./cell -o results.txt",
                "wavefront edges.txt -X 15 -Y 20 -W 5 -H 5 ./cell",
            ),
            first=("edges", "function"),
            hidden=True,
        ),
        Command(
            words="matrix",
            request=matrices.ShowMatrixRequest,
            output=CommandOutput,
            run=f"{_MATRICES}:show_matrix",
            examples=("matrix allpairs.matrix > results.txt",),
            hidden=True,
        ),
    ),
    "bags": (
        Command(
            words="bags run",
            request=bags.RunBagsRequest,
            output=CommandOutput,
            run=f"{_BAGS}:run",
            examples=(
                "bags run data/bag.yaml",
                "bags run A.yaml B.yaml --sites sites.toml",
            ),
            app="bags_app",
            module_of_app="vgrads.portal.cli.bags.group",
        ),
        Command(
            words="bags resume",
            request=bags.ResumeBagRequest,
            output=CommandOutput,
            run=f"{_BAGS}:resume",
            examples=("bags resume BAG",),
            app="bags_app",
            module_of_app="vgrads.portal.cli.bags.group",
            hidden=True,
        ),
        Command(
            words="bags retry",
            request=bags.RetryBagRequest,
            output=CommandOutput,
            run=f"{_BAGS}:retry",
            examples=(
                "bags retry BAG",
                "bags retry BAG 7 9",
            ),
            app="bags_app",
            module_of_app="vgrads.portal.cli.bags.group",
            hidden=True,
        ),
        Command(
            words="bags results",
            request=bags.BagResultsRequest,
            output=CommandOutput,
            run=f"{_BAGS}:results",
            examples=(
                "bags results BAG --out DIR",
                "bags results BAG --out T.csv",
            ),
            app="bags_app",
            module_of_app="vgrads.portal.cli.bags.group",
        ),
        Command(
            words="bags cancel",
            request=bags.CancelBagRequest,
            output=CommandOutput,
            run=f"{_BAGS}:cancel",
            examples=("bags cancel BAG",),
            app="bags_app",
            module_of_app="vgrads.portal.cli.bags.group",
            hidden=True,
        ),
        Command(
            words="bags status",
            request=bags.BagStatusRequest,
            output=TableOutput,
            run=f"{_BAGS}:status",
            examples=(
                "bags status",
                "bags status BAG --json",
            ),
            app="bags_app",
            module_of_app="vgrads.portal.cli.bags.group",
            hidden=True,
        ),
        Command(
            words="bags logs",
            request=bags.BagLogsRequest,
            output=LinesOutput,
            run=f"{_BAGS}:logs",
            examples=(
                "bags logs BAG --failed",
                "bags logs BAG --task 7",
            ),
            app="bags_app",
            module_of_app="vgrads.portal.cli.bags.group",
            hidden=True,
        ),
        Command(
            words="bags invite",
            request=bags.InviteRequest,
            output=NoOutput,
            run=f"{_BAGS}:invite",
            examples=("bags invite BAG --contact 192.0.2.7 > join.sh",),
            app="bags_app",
            module_of_app="vgrads.portal.cli.bags.group",
        ),
        Command(
            words="bags explain",
            request=bags.ExplainBagRequest,
            output=CommandOutput,
            run=f"{_BAGS}:explain",
            examples=(
                "bags explain BAG",
                "bags explain BAG 7 --host node3",
            ),
            app="bags_app",
            module_of_app="vgrads.portal.cli.bags.group",
            hidden=True,
        ),
    ),
    "pools": (
        Command(
            words="pool run",
            request=pools.RunPoolRequest,
            output=CommandOutput,
            run=f"{_POOLS}:run",
            examples=(
                "pool run data/pool.yaml",
                "pool run POOL.yaml --sites sites.toml --service https://vgrads.example",
            ),
            app="pool_app",
            module_of_app="vgrads.portal.cli.pools.group",
        ),
        Command(
            words="pool status",
            request=pools.PoolStatusRequest,
            output=TableOutput,
            run=f"{_POOLS}:status",
            examples=(
                "pool status",
                "pool status --json",
            ),
            app="pool_app",
            module_of_app="vgrads.portal.cli.pools.group",
            hidden=True,
        ),
        Command(
            words="pool decide",
            request=pools.DecidePoolRequest,
            output=CommandOutput,
            run=f"{_POOLS}:decide",
            examples=("pool decide data/pool.yaml",),
            app="pool_app",
            module_of_app="vgrads.portal.cli.pools.group",
        ),
        Command(
            words="pool explain",
            request=pools.ExplainPoolRequest,
            output=CommandOutput,
            run=f"{_POOLS}:explain",
            examples=(
                "pool explain",
                "pool explain POOL --json",
            ),
            app="pool_app",
            module_of_app="vgrads.portal.cli.pools.group",
            hidden=True,
        ),
    ),
    "queues": (
        Command(
            words="forecast",
            request=questions.ForecastRequest,
            output=CommandOutput,
            run="vgrads.portal.cli.queues.asking:forecast_now",
            examples=(
                "forecast KTH-SP2.swf.gz --procs 16 --walltime 2h",
                "forecast mercury/normal -n 64 -w 4h --start-by 6h",
            ),
            first=("history", "procs", "walltime_s", "start_by_s", "probability", "within_s"),
        ),
        Command(
            words="bound",
            request=questions.BoundRequest,
            output=CommandOutput,
            run="vgrads.portal.cli.queues.asking:bound_now",
            examples=("bound KTH-SP2.swf.gz --procs 16 --walltime 2h --probability .95",),
            first=_JOB_FIRST,
            hidden=True,
        ),
        Command(
            words="probability",
            request=questions.ProbabilityRequest,
            output=CommandOutput,
            run="vgrads.portal.cli.queues.asking:probability_now",
            examples=("probability KTH-SP2.swf.gz --procs 16 --walltime 2h --within 30m",),
            first=_JOB_FIRST,
            hidden=True,
        ),
        Command(
            words="trajectory",
            request=questions.TrajectoryRequest,
            output=CommandOutput,
            run="vgrads.portal.cli.queues.asking:trajectory_now",
            examples=(
                "trajectory KTH-SP2.swf.gz --procs 16 --walltime 2h --start-by 6h --probability .9",
            ),
            first=_JOB_FIRST,
            hidden=True,
        ),
        Command(
            words="backtest",
            request=questions.BacktestRequest,
            output=BacktestOutput,
            run="vgrads.portal.cli.queues.backtest_now:backtest_now",
            examples=("backtest logs/*.swf.gz --by queue --report backtest.html",),
            first=("histories", "by", "probability", "confidence", "method"),
        ),
    ),
    "rankings": (
        Command(
            words="where",
            request=questions.RankingRequest,
            output=TableOutput,
            run="vgrads.portal.cli.queues.ranking_now:rank_now",
            examples=("where --procs 64 --walltime 4h --sites sites.toml",),
            hidden=True,
        ),
        Command(
            words="score",
            request=questions.ScoreRequest,
            output=TableOutput,
            run="vgrads.portal.cli.queues.score_now:score_now",
            examples=("score", "score SITE/QUEUE"),
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


_LOG_EXAMPLE = (
    ">>> import vgrads\n"
    ">>> from vgrads.api.config import embedded_data\n"
    '>>> log = embedded_data() / "histories" / "mayhem.swf.gz"\n'
)
_QUEUE_NEEDS = (
    "vgrads.interface.arguments:FileName",
    "vgrads.interface.catalogs:Sites",
    "vgrads.interface.queue_results:BoundResult",
    "vgrads.interface.queue_results:ProbabilityResult",
)
_HISTORY = (
    "history: FileName",
    "a queue log (SWF, GWF, ``sacct -P``, PBS or Grid Engine accounting; plain, .gz or .xz); with "
    "``sites``: ``SITE`` or ``SITE/QUEUE`` of these",
)
_QUEUE_SITES = (
    "sites: Sites | None = None",
    'a TOML file, a mapping with its fields, or ``"here"``: where ``history`` names a queue',
)
FUNCTION_MODULES: dict[str, tuple[Function, ...]] = {
    "queues": (
        Function(
            name="bound",
            requests={"reading": questions.ReadingFields, "options": questions.BoundOptions},
            result="BoundResult",
            run="vgrads.interface.queues:bound_of",
            doc="How long does a job wait at most? (GETBOUND)",
            leading=(_HISTORY,),
            positional=("procs", "walltime_s", "probability", "confidence"),
            trailing=(_QUEUE_SITES,),
            example=_LOG_EXAMPLE
            + (
                '>>> result = vgrads.bound(log, procs=16, walltime="2h", method="qbets")\n'
                ">>> result\n"
                "BoundResult: 16 processors for 2h wait at most 2h 16m with probability 0.95\n"
                "  confidence 0.95, method qbets, 311 similar jobs since 2008-11-01T01:42:51Z\n"
                '>>> result.trajectory(start_by="6h", probability=0.9).submit_in_s\n'
                "17490.0"
            ),
            needs=_QUEUE_NEEDS,
        ),
        Function(
            name="probability",
            requests={
                "reading": questions.ReadingFields,
                "options": questions.ProbabilityOptions,
            },
            result="ProbabilityResult",
            run="vgrads.interface.queues:probability_of",
            doc="With which probability does a job start within a time? (GETPROB)",
            leading=(_HISTORY,),
            positional=("procs", "walltime_s"),
            trailing=(_QUEUE_SITES,),
            example=_LOG_EXAMPLE
            + (
                '>>> vgrads.probability(log, procs=16, walltime="2h", within="30m", '
                'method="qbets")\n'
                "ProbabilityResult: starts within 30m with probability 0.822\n"
                "  confidence 0.95, method qbets, 311 similar jobs"
            ),
            needs=_QUEUE_NEEDS,
        ),
    ),
    "backtests": (
        Function(
            name="backtest",
            requests={"options": questions.BacktestOptions},
            result="BacktestResult",
            run="vgrads.interface.backtests:backtest_histories",
            doc="Would the bounds have been right? Each job's bound is computed from earlier "
            "records only.",
            leading=(("histories: FileName | Sequence[FileName]", "one log or several"),),
            positional=("by", "probability", "confidence"),
            trailing=(
                (
                    "levels: Sequence[float] = LEVELS",
                    "further probabilities of the reliability curve, ``()`` for none; by past "
                    "waits alone each is one more replay",
                ),
                (
                    "on_progress: Callable[[float, float], None] | None = None",
                    "called with the amount done and the total",
                ),
            ),
            example=_LOG_EXAMPLE
            + (
                '>>> result = vgrads.backtest(log, method="qbets", levels=())\n'
                ">>> result.rows[0].scored, round(result.rows[0].coverage, 3)\n"
                "(2479, 0.973)"
            ),
            needs=(
                "collections.abc:Callable",
                "collections.abc:Sequence",
                "vgrads.interface.arguments:FileName",
                "vgrads.interface.backtests:BacktestResult",
                "vgrads.interface.backtests:LEVELS",
            ),
        ),
    ),
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
    ``more``: its parameters that are sent otherwise; ``without``: fields that a service does not
    take; ``before``: a statement; ``value``: what of
    the ``answer`` is returned."""

    name: str
    request: type
    verb: str
    path: str
    doc: str
    leading: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()
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
    ClientMethod(
        name="bound",
        request=questions.BoundOptions,
        verb="GET",
        path="{queue_path(site, queue)}/bound",
        doc="Return an upper bound on the wait of a job: the JSON of ``vgrads bound``.",
        leading=("site: str", "queue: str"),
        without=questions.NOT_QUERIED,
    ),
    ClientMethod(
        name="probability",
        request=questions.ProbabilityOptions,
        verb="GET",
        path="{queue_path(site, queue)}/probability",
        doc="Return the probability that a job starts within a time.",
        leading=("site: str", "queue: str"),
        without=questions.NOT_QUERIED,
    ),
    ClientMethod(
        name="trajectory",
        request=questions.TrajectoryOptions,
        verb="GET",
        path="{queue_path(site, queue)}/trajectory",
        doc="Return when a job must be submitted that must run in ``start_by_s``.",
        leading=("site: str", "queue: str"),
        without=questions.NOT_QUERIED,
    ),
    ClientMethod(
        name="where",
        request=questions.RankingOptions,
        verb="GET",
        path="/v1/where",
        doc="Return all queues by the expected start of a job, and the cheapest cloud.",
    ),
)
