"""sacctmgr: users, accounts and associations, read only.

Source: sacctmgr(1) of Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgrads.slurm.errors import Reply, SlurmError, command_error
from vgrads.slurm.text.options import CommandOptions, information, listed, options, scan
from vgrads.slurm.text.padded import PARSABLE, PARSABLE2, PaddedColumn, PaddedTable, split_width

_COMMAND = CommandOptions(
    "sacctmgr",
    options(
        """
        associations/s help/h immediate/i json noheader/n oneliner/o parsable/p parsable2/P quiet/Q
        readonly/r usage verbose/v version/V yaml
        """
    ),
)
_ENTITIES = {
    "accounts": "account",
    "associations": "association",
    "clusters": "cluster",
    "qos": "qos",
    "users": "user",
}
_NO_ENTITY = """\
No valid entity in list command
Input line must include "Account", "Association", "Cluster", "Configuration",
"Event", "Federation", "Problem", "QOS", "Resource", "Reservation",
"RunAwayJobs", "Stats", "Transaction", "TRES", "User", or "WCKey\""""
_CHANGING = ("add", "create", "modify", "delete", "remove", "archive", "dump", "load", "clear")
_DEFAULTS = {
    "user": "User,DefaultAccount,AdminLevel",
    "account": "Account,Descr,Org",
    "association": (
        "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmitJobs,GrpWall,"
        "GrpTRESMins,MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmitJobs,MaxWall,MaxTRESMins,QOS,"
        "DefaultQOS,GrpTRESRunMins"
    ),
    "qos": "Name,Priority,GraceTime,Preempt,PreemptMode,Flags,UsageFactor,MaxWall",
    "cluster": "Cluster,ControlHost,ControlPort,RPC,Share,QOS,DefaultQOS",
}
_WITH_ASSOCIATIONS = (
    ",Cluster,Account,Partition,Share,Priority,MaxJobs,MaxNodes,MaxCPUs,MaxSubmitJobs,MaxWall,"
    "MaxCPUMins,QOS,DefaultQOS"
)
_TITLES: dict[str, tuple[str, int]] = {
    "User": ("User", 10),
    "Name": ("Name", 10),
    "DefaultAccount": ("Def Acct", 10),
    "AdminLevel": ("Admin", 9),
    "Cluster": ("Cluster", 10),
    "Account": ("Account", 10),
    "Descr": ("Descr", 20),
    "Org": ("Org", 20),
    "Partition": ("Partition", 10),
    "Share": ("Share", 9),
    "Fairshare": ("Share", 9),
    "Priority": ("Priority", 10),
    "GrpJobs": ("GrpJobs", 7),
    "GrpTRES": ("GrpTRES", 13),
    "GrpTRESMins": ("GrpTRESMins", 13),
    "GrpTRESRunMins": ("GrpTRESRunMin", 13),
    "GrpSubmitJobs": ("GrpSubmit", 9),
    "GrpWall": ("GrpWall", 11),
    "MaxJobs": ("MaxJobs", 7),
    "MaxNodes": ("MaxNodes", 8),
    "MaxCPUs": ("MaxCPUs", 8),
    "MaxCPUMins": ("MaxCPUMins", 11),
    "MaxTRES": ("MaxTRES", 13),
    "MaxTRESMins": ("MaxTRESMins", 13),
    "MaxTRESPerNode": ("MaxTRESPerNode", 14),
    "MaxSubmitJobs": ("MaxSubmit", 9),
    "MaxWall": ("MaxWall", 11),
    "QOS": ("QOS", 20),
    "DefaultQOS": ("Def QOS", 9),
    "ParentName": ("ParentName", 10),
    "ID": ("ID", 6),
    "GraceTime": ("GraceTime", 10),
    "Preempt": ("Preempt", 10),
    "PreemptMode": ("PreemptMode", 11),
    "Flags": ("Flags", 20),
    "UsageFactor": ("UsageFactor", 11),
    "ControlHost": ("ControlHost", 15),
    "ControlPort": ("ControlPort", 12),
    "RPC": ("RPC", 5),
}
"""Names of fields, each with its title and width."""


@dataclass(frozen=True)
class Association:
    """An account of a user; the user is empty for the account itself."""

    account: str
    user: str = ""
    default: bool = True


@dataclass(frozen=True)
class ManagerQuery:
    """What sacctmgr lists: an entity, conditions (``user``, ``account``, ``name``, each with its
    words), and the fields with their widths (0: their own). ``reply`` answers the rest."""

    entity: str = ""
    conditions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    fields: tuple[tuple[str, int], ...] = ()
    style: str = ""
    header: bool = True
    with_associations: bool = False
    reply: Reply | None = None

    def allows(self, key: str, value: str) -> bool:
        """Whether a value satisfies the conditions of a key."""
        return all(value in words for name, words in self.conditions if name == key)


def parse_sacctmgr(arguments: Sequence[str]) -> ManagerQuery:
    """Parse the command line of sacctmgr. Raises SlurmError with the words of sacctmgr."""
    parsed, words = scan(_COMMAND, arguments)
    names = {name for name, _ in parsed}
    reply = information(_COMMAND, parsed, "[<OPTION>] [<COMMAND>]")
    if reply is not None:
        return ManagerQuery(reply=reply)
    if not words:
        raise command_error("sacctmgr", "commands from standard input are not supported by vgrads")
    if words[0].lower() == "version":
        return ManagerQuery(reply=information(_COMMAND, [("version", None)], ""))
    if words[0].lower() in _CHANGING:
        raise command_error("sacctmgr", "vgrads has no accounts that could be changed")
    if words[0].lower() not in ("list", "show"):
        raise SlurmError(f"invalid keyword: {words[0]}")
    entity = _find_entity(words[1:2])
    style = PARSABLE if "parsable" in names else ""
    query = ManagerQuery(
        entity=entity,
        style=PARSABLE2 if "parsable2" in names else style,
        header="noheader" not in names,
        with_associations="associations" in names,
    )
    return _parse_conditions(query, words[2:])


def _find_entity(words: Sequence[str]) -> str:
    for name, entity in _ENTITIES.items():
        if words and len(words[0]) >= 3 and name.startswith(words[0].lower().rstrip("s")):
            return entity
    raise SlurmError(_NO_ENTITY)


def _parse_conditions(query: ManagerQuery, words: Sequence[str]) -> ManagerQuery:
    conditions: list[tuple[str, tuple[str, ...]]] = []
    text = ""
    with_associations = query.with_associations
    for word in words:
        key, equals, value = word.partition("=")
        lower = key.lower()
        if lower == "withassoc":
            with_associations = True
        elif lower == "format" and equals:
            text += f",{value}"
        elif equals:
            conditions.append((_find_key(query.entity, lower), listed(value)))
        elif lower not in ("where", "tree", "wopi", "wolimits", "withdeleted"):
            conditions.append((_find_key(query.entity, ""), listed(word)))
    default = _DEFAULTS[query.entity]
    if with_associations and query.entity == "user":
        default += _WITH_ASSOCIATIONS
    return ManagerQuery(
        query.entity,
        tuple(conditions),
        tuple(_find_field(word) for word in listed(text or default)),
        query.style,
        query.header,
        with_associations,
    )


def _find_key(entity: str, key: str) -> str:
    if key.startswith(("name", "user")) or not key:
        return {"account": "account", "qos": "qos", "cluster": "cluster"}.get(entity, "user")
    return "account" if key.startswith("acc") else key


def _find_field(word: str) -> tuple[str, int]:
    try:
        name, width = split_width(word)
    except ValueError as error:
        raise SlurmError(f"Unknown field '{word}'") from error
    lower = name.lower()
    exact = [n for n in _TITLES if n.lower() == lower]
    matches = exact or [n for n in _TITLES if n.lower().startswith(lower)]
    matches = matches or [n for n in _TITLES if lower.startswith(n.lower()) and len(n) > 4]
    if not matches:
        raise SlurmError(f"Unknown field '{name}'")
    return matches[0], width


@dataclass(frozen=True)
class AccountsView:
    """The associations, the name of the cluster and the host of the service."""

    associations: Sequence[Association] = ()
    cluster: str = "vgrads"
    host: str = "localhost"
    admins: frozenset[str] = field(default_factory=frozenset)


def render_sacctmgr(query: ManagerQuery, view: AccountsView) -> Reply:
    """Return the list."""
    if query.reply is not None:
        return query.reply
    columns = []
    for name, width in query.fields:
        title, own = _TITLES[name]
        columns.append(PaddedColumn(title, abs(width) or own, width < 0))
    rows = [[row.get(name, "") for name, _ in query.fields] for row in _make_rows(query, view)]
    table = PaddedTable(columns, query.style, header=query.header)
    return Reply(table.render(rows))


def _make_rows(query: ManagerQuery, view: AccountsView) -> list[dict[str, str]]:
    if query.entity == "qos":
        qos = {"Name": "normal", "Priority": "0", "GraceTime": "00:00:00"}
        rows = [qos | {"PreemptMode": "cluster", "UsageFactor": "1.000000"}]
        return [row for row in rows if query.allows("qos", "normal")]
    if query.entity == "cluster":
        cluster = {"Cluster": view.cluster, "ControlHost": view.host, "ControlPort": "0"}
        return [cluster | {"RPC": "9728", "Share": "1", "QOS": "normal"}]
    rows = []
    for number, association in enumerate(view.associations, 1):
        if not query.allows("user", association.user):
            continue
        if query.allows("account", association.account):
            rows.append(_make_row(number, association, view))
    if query.entity == "association":
        return rows
    return _select_unique(query, rows)


def _make_row(number: int, association: Association, view: AccountsView) -> dict[str, str]:
    user = association.user
    defaults = [a.account for a in view.associations if a.user == user and a.default]
    return {
        "User": user,
        "Name": user or association.account,
        "DefaultAccount": defaults[0] if user and defaults else "",
        "AdminLevel": "Administrator" if user in view.admins else "None",
        "Cluster": view.cluster,
        "Account": association.account,
        "Descr": association.account,
        "Org": association.account,
        "Share": "1",
        "Fairshare": "1",
        "QOS": "normal",
        "ID": str(number),
    }


def _select_unique(query: ManagerQuery, rows: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return a row for each user or account, or each association of the users."""
    key = "Account" if query.entity == "account" else "User"
    result: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        # associations of accounts themselves have no user
        if row[key]:
            detail = row["Account"] if query.with_associations else ""
            shown = dict(row)
            if not query.with_associations and query.entity == "user":
                shown["Account"] = shown["Cluster"] = shown["QOS"] = ""
            result.setdefault((row[key], detail), shown)
    return list(result.values())
