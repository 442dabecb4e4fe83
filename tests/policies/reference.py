"""Random policies and ads, and what plain classad2 says of them: nested ads, nothing simplified,
nothing remembered."""

import math
from dataclasses import dataclass
from itertools import product

import classad2

from vgrads.policies.names import GRID, HOST, REPLICA
from vgrads.policies.values import ERROR, UNDEFINED

TEXTS = ("a", "B", "", "is3.myhost", "Technion", "OSG", "x y", "1.2")
NAMES = {
    "Host": (
        "Host.Name",
        "host.Grid",
        "Host.NumCpus",
        "Host.ErrorRate",
        "HOST.JobsToday",
        "Host.RecentSuccess",
    ),
    "Job": (
        "Job.Name",
        "NumberOfReplicas",
        "Job.Replica1.Host.ErrorRate",
        "Job.Replica2.Age",
        "Job.Replica1.host.Grid",
    ),
    "Many": (
        "Job.Grids",
        "Job.Replicas.Host.ErrorRate",
        "job.replicas.Age",
        "Job.Replicas.Host.Grid",
    ),
    "Queue": ("BOTsInQueue", "Queue.BOTsInQueue"),
    "Grid": ("Grid.Name", "Grid.Free", "Grid.ErrorRate", "Grid.MeanWait"),
    "Bag": ("Tail", "JobsLeft", "JobsDone", "tail"),
}
WORKING = ("Host", "Job", "Many", "Queue", "Bag", "Bag")
SIGNS = (
    "||",
    "&&",
    "==",
    "!=",
    "=?=",
    "=!=",
    "is",
    "isnt",
    "<",
    "<=",
    ">",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "|",
    "^",
    "&",
    "<<",
    ">>",
    ">>>",
    "?:",
)
CALLS = {
    1: (
        "size",
        "isUndefined",
        "isError",
        "isString",
        "isInteger",
        "isReal",
        "isBoolean",
        "isList",
        "int",
        "real",
        "string",
        "bool",
        "floor",
        "ceiling",
        "round",
        "toUpper",
        "toLower",
        "sum",
        "avg",
        "min",
        "max",
    ),
    2: (
        "member",
        "identicalMember",
        "strcat",
        "strcmp",
        "stricmp",
        "substr",
        "versionGE",
        "pow",
        "quantize",
    ),
    3: ("ifThenElse",),
}
SHIFTS = ("<<", ">>", ">>>")


@dataclass
class World:
    state: dict
    agent: dict
    job: dict
    queue: dict
    grid: dict


def products(values, count):
    return product(values, repeat=count)


def value(draw):
    return draw.choice(
        [
            draw.randrange(-3, 6),
            draw.random(),
            draw.random() < 0.5,
            draw.choice(TEXTS),
            draw.choice(TEXTS),
            None,
            draw.randrange(0, 3000),
            0.1,
        ]
    )


def literal_text(draw):
    return draw.choice(
        [
            str(draw.randrange(0, 9)),
            f"{draw.random():.3f}",
            "true",
            "false",
            "undefined",
            f'"{draw.choice(TEXTS)}"',
            "2000",
            "0.1",
            '{1, "OSG", true}',
            "error",
            "1e3",
        ]
    )


def expression(draw, kinds, depth, helpers=()):
    """A text without more brackets than chance gives it, so that precedence is tried as well."""
    if depth == 0 or draw.random() < 0.15:
        if helpers and draw.random() < 0.2:
            return draw.choice(helpers)
        return (
            draw.choice(NAMES[draw.choice(kinds)]) if draw.random() < 0.65 else literal_text(draw)
        )
    item = [expression(draw, kinds, depth - 1, helpers) for _ in range(3)]
    kind = draw.randrange(10)
    if kind < 4:
        sign = draw.choice(SIGNS)
        return f"{item[0]} {sign} ({item[1]})" if sign == "?:" else f"{item[0]} {sign} {item[1]}"
    if kind <= 5:
        return f"({item[0]})" if kind == 4 else f"{draw.choice('!!-+~')} {item[0]}"
    if kind == 6:
        return f"({item[0]} ? {item[1]} : {item[2]})"
    if kind == 7:
        return (
            f'{draw.choice(["anyCompare", "allCompare"])}("{draw.choice(["<", ">", "==", "is"])}", '
            f"{item[0]}, {item[1]})"
        )
    if kind == 8:
        return f'regexp("{draw.choice(["myhost", "^a", "o.*n", "[0-9]+", "OSG|B"])}", {item[0]})'
    count = draw.randrange(1, 4)
    return f"{draw.choice(CALLS[count])}({', '.join(item[:count])})"


def policy(draw):
    """Two helpers, and the slots; in a third of them a condition on Tail stands first."""
    texts = {"Help": expression(draw, WORKING, 2)}
    texts["Other"] = expression(draw, WORKING, 2, ("Help",))
    for slot in ("JobRequirements", "Rank", "ReplicationRequirements", "Concurrency", "Deadline"):
        helpers = ("Help", "other") + (
            ("Concurrency",) if slot in ("Deadline", "ReplicationRequirements") else ()
        )
        text = expression(draw, WORKING, draw.randrange(1, 5), helpers)
        texts[slot] = f"!Tail ? {literal_text(draw)} : {text}" if draw.random() < 0.3 else text
    texts["GridPolicy"] = expression(draw, ("Grid", "Queue", "Bag"), draw.randrange(1, 5))
    return texts


def world(draw):
    def some(names):
        return {name: value(draw) for name in names if draw.random() < 0.85}

    def replica():
        return some(REPLICA) | {"Host": some(HOST)}

    replicas = [replica() for _ in range(draw.randrange(0, 4))]
    job = {
        "Name": value(draw),
        "NumberOfReplicas": len(replicas),
        "Replicas": replicas,
        "Grids": [item["Host"].get("Grid") for item in replicas],
    }
    job |= {f"Replica{i}": replica for i, replica in enumerate(replicas, 1)}
    state = {
        "Tail": draw.choice([True, False, None]),
        "JobsLeft": draw.randrange(0, 4000),
        "JobsDone": value(draw),
    }
    return World(state, some(HOST), job, {"BOTsInQueue": draw.randrange(1, 9)}, some(GRID))


def written(value):
    if isinstance(value, dict):
        return f"[{'; '.join(f'{k} = {written(v)}' for k, v in value.items())}]"
    if isinstance(value, list):
        return f"{{{', '.join(map(written, value))}}}"
    if value is None:
        return "undefined"
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f'"{value}"'
        if isinstance(value, str)
        else repr(value)
    )


def plain(texts, slot, world):
    """The slot's value in one ad of ads. What an ad lacks stands there as undefined: else it would
    be looked for in the ads around it."""
    replicas = [
        dict.fromkeys(REPLICA) | replica | {"Host": dict.fromkeys(HOST) | replica["Host"]}
        for replica in world.job["Replicas"]
    ]
    job = (
        world.job
        | {"Replicas": replicas}
        | {f"Replica{i}": replica for i, replica in enumerate(replicas, 1)}
    )
    bag = dict(world.state) | {
        "NumberOfReplicas": job["NumberOfReplicas"],
        "BOTsInQueue": world.queue["BOTsInQueue"],
    }
    attributes = {name: written(v) for name, v in bag.items()} | texts
    if slot in ("Deadline", "ReplicationRequirements"):
        attributes["Concurrency"] = "3"
    parts = {
        "Host": written(dict.fromkeys(HOST) | world.agent),
        "Job": written(job),
        "Queue": written(world.queue),
        "Grid": written(dict.fromkeys(GRID) | world.grid),
        "BOT": f"[{'; '.join(f'{k} = {v}' for k, v in attributes.items())}]",
        "said": f"BOT.{slot}",
    }
    ad = classad2.ClassAd(f"[{'; '.join(f'{k} = {v}' for k, v in parts.items())}]")
    return ours(ad.eval("said"))


def ours(result):
    if isinstance(result, classad2.Value):
        return UNDEFINED if result == classad2.Value.Undefined else ERROR
    return tuple(map(ours, result)) if isinstance(result, list) else result


def evaluate(left, slot, world):
    agent, job, queue, grid = world.agent, world.job, world.queue, world.grid
    return {
        "JobRequirements": lambda: left.requirements(agent, job, queue),
        "Rank": lambda: left.rank(agent, job, queue),
        "ReplicationRequirements": lambda: left.replication(job, queue, agent, 3),
        "Concurrency": lambda: left.concurrency(agent, job, queue),
        "Deadline": lambda: left.deadline(agent, job, queue, 3),
        "GridPolicy": lambda: left.grid(grid, queue),
    }[slot]()


def same(a, b):
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return type(a) is type(b) and a == b
