"""What callers want of a virtual grid, and what is procured for it."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DATA
from vgrads.kernel.errors import InputError
from vgrads.vgrid.binding import BindingRequest, find_surplus
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site, load_catalog
from vgrads.vgrid.offers import Knowledge
from vgrads.vgrid.procure import procure
from vgrads.vgrid.programme import RemainingLimits, compute_penalty, greedy, solve
from vgrads.vgrid.request import GridRequest, NodeGroup, parse_request_document
from vgrads.vgrid.request_file import load_request
from vgrads.vgrid.request_text import parse_request, write_request
from vgrads.vgrid.shapes import SlotOption, group_choices
from vgrads.vgrid.slot import Slot, make_certain_curve
from vgrads.vgrid.tree import build_tree

TEXT = """
grid storm for 2h by 6h with 90% under $20 {   # tonight
  solvers = tight 16..32 nodes [cores >= 8, memory >= 16 GiB] rank speed
  farm = loose 10 nodes
}
"""
YAML = """
name: storm
duration: 2h
deadline: 6h
probability: 0.9
budget_usd: 20
groups:
- {name: solvers, coupling: tight, nodes: 16..32, cores: 8, memory: 16GiB, rank: speed}
- {name: farm, nodes: 10}
"""


def test_text_and_documents_say_the_same(write):
    request = parse_request(TEXT, "a")
    assert request == load_request(write("a.yaml", YAML)) == load_request(write("a.grid", TEXT))
    assert request.start_by_s == 14400
    assert request.groups[0].memory_mib == 16384


names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,8}", fullmatch=True)
groups = st.builds(
    lambda name, coupling, counts, cores, memory, speed, rank: NodeGroup(
        name=name,
        coupling=coupling,
        least=min(counts),
        most=max(counts),
        cores=cores,
        memory_mib=memory,
        speed=speed,
        rank=rank,
    ),
    names,
    st.sampled_from(["tight", "loose"]),
    st.tuples(st.integers(1, 99), st.integers(1, 99)),
    st.integers(1, 64),
    st.none() | st.integers(1, 10**6).map(float),
    st.sampled_from([0.0, 0.5, 1.25]),
    st.sampled_from(["probability", "speed", "price", "start"]),
)


@given(
    names,
    st.lists(groups, min_size=1, max_size=4, unique_by=lambda g: g.name),
    st.integers(1, 10**5),
    st.integers(0, 1000),
    st.none() | st.integers(0, 1000),
)
def test_every_request_can_be_written_down_and_read_again(name, groups, duration, earliest, budget):
    request = GridRequest(
        name=name,
        groups=tuple(groups),
        duration_s=float(duration),
        earliest_s=float(earliest),
        deadline_s=float(duration + earliest),
        probability=0.875,
        budget_usd=budget,
    )
    assert parse_request(write_request(request), "text") == request


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "grid a for 1h by 2h { x = tight 4 nodes [cores > 2] }",
            "line 1, column 48: unexpected character '>'",
        ),
        ("grid a for 1h by 2h {\n x = firm 4 nodes }", "line 2, column 6: expected a coupling"),
        ("grid a for 1h by 2h { x = tight 4 pods }", "column 35: expected 'nodes', found 'pods'"),
        ("grid a for 1h for 2h { }", "column 15: expected 'for' once"),
        ("grid a for 1h by 2h { x = loose 4 nodes", "expected more, found the end"),
        ("grid a for 1h by 2h { x = loose 9..4 nodes }", "groups.0.nodes: '9..4' is not a range"),
        ("grid a for soon by 2h { x = loose 4 nodes }", "duration: 'soon' is not a duration"),
        ("grid a for 3h by 2h { x = loose 4 nodes }", "end after the deadline"),
        ("grid a by 2h { x = loose 4 nodes }", "duration: is missing"),
        (
            "grid a for 1h by 2h { x = loose 1 node x = loose 1 node }",
            "two groups have the same name",
        ),
        (
            "grid a for 1h by 2h { x = loose 1 node [memory >= much] }",
            "'much' is not an amount of memory",
        ),
        ("grid a for 1h by 2h { }", "groups"),
        ("net a", "column 1: expected 'grid', found 'net'"),
        ("grid a for 1h by 2h { x = loose 1 node } more", "expected the end, found 'more'"),
    ],
)
def test_mistakes_are_reported_with_their_place(text, message):
    with pytest.raises(InputError) as caught:
        parse_request(text, "t.grid")
    assert message in str(caught.value)
    assert "t.grid" in str(caught.value)


CLOUDS = """
[[site]]
name = "free"
kind = "dedicated"
procs = 16
slot_up = 0.8
[[site]]
name = "big"
kind = "cloud"
procs = 64
[[site.node]]
type = "plain"
cores = 4
memory_mib = 8000
price_usd_per_hour = 0.5
[[site.node]]
type = "quick"
cores = 8
memory_mib = 64000
speed = 2.0
price_usd_per_hour = 2.0
"""


@pytest.fixture
def catalog(write):
    return load_catalog(write("sites.toml", CLOUDS))


def ask(catalog, text, **more):
    offer = procure(catalog, Knowledge(), parse_request(text, "t"), **more)
    offer.check()
    return offer


def places(offer):
    return {c.cluster for g in offer.groups for c in g.choices}


def test_limits_and_ranks_choose_the_nodes(catalog):
    assert places(ask(catalog, "grid a for 1h by 2h with 50% { x = tight 4 nodes }")) == {
        "free/nodes"
    }
    assert places(
        ask(catalog, "grid a for 1h by 2h { x = tight 4 nodes [cores >= 2] rank price }")
    ) == {"big/plain"}
    offer = ask(catalog, "grid a for 1h by 2h { x = tight 2 nodes [memory >= 32GB] }")
    assert places(offer) == {"big/quick"}
    assert {e.place for e in offer.groups[0].excluded} == {"free/nodes", "big/plain"}
    assert offer.cost_usd == 4.0  # asked for as late as they still come: two nodes for one hour


def test_sureness_is_bought_with_surplus(catalog):
    cheap = ask(catalog, "grid a for 1h by 2h with 70% { x = loose 4 nodes }")
    sure = ask(catalog, "grid a for 1h by 2h with 99% { x = loose 4 nodes }")
    assert cheap.enough
    assert sure.enough
    assert cheap.cost_usd == 0 < sure.cost_usd


def test_a_budget_is_respected_to_the_cent(catalog):
    for budget in (0, 0.49, 0.5, 1.99, 2, 8):
        offer = ask(
            catalog,
            f"grid a for 1h by 2h with 99% under ${budget} {{ x = loose 4 nodes [cores >= 2] }}",
        )
        assert offer.cost_usd <= budget
        assert offer.enough == (budget >= 2)


def test_groups_share_what_there_is(catalog):
    offer = ask(catalog, "grid a for 1h by 2h with 50% { x = tight 12 nodes y = loose 12 nodes }")
    used = [c.slot.procs for g in offer.groups for c in g.choices if c.slot.site == "free"]
    assert sum(used) <= 16
    assert offer.enough


def test_an_allocation_of_node_hours_is_respected(write):
    text = '[[site]]\nname = "s"\nkind = "dedicated"\nprocs = 16\nnode_hours = {}\n'
    required = "grid a for 2h by 2h { x = tight 4 nodes }"
    assert ask(load_catalog(write("a.toml", text.format(8))), required).enough
    short = ask(load_catalog(write("b.toml", text.format(7.9))), required)
    assert not short.enough
    assert short.groups[0].choices == ()


def test_the_tree_can_be_searched(catalog):
    tree = build_tree(
        ask(
            catalog,
            "grid a for 1h by 2h with 99% { x = loose 4 nodes y = tight 2 nodes [cores >= 8] }",
        )
    )
    assert [node.kind for node in tree.walk()][:3] == ["grid", "site", "cluster"]
    slots = tree.find("slot")
    assert tree.facts["nodes"] == sum(slot.facts["nodes"] for slot in slots)
    assert {slot.facts["site"] for slot in tree.find("slot", group="y")} == {"big"}
    assert [n.name for n in tree.find("site", name="x")] == []
    assert tree.as_json()["children"][0]["kind"] == "site"


def synthetic(draw):
    """Choices over two clusters, with positions, probabilities and prices."""
    results = []
    for cluster, price in (("a/q", 0.0), ("b/q", 1.0)):
        for width in (1, 2):
            for position in range(1, draw(st.integers(1, 3)) + 1):
                slot = Slot(
                    id=f"{cluster}-{width}-{position}",
                    site=cluster[0],
                    queue="q",
                    kind="batch",
                    procs=width,
                    curve=make_certain_curve(0.0),
                    end_s=100.0,
                    shared=cluster,
                )
                chance = draw(st.sampled_from([0.3, 0.5, 0.9, 1.0]))
                results.append(
                    SlotOption(
                        slot=slot,
                        cluster=cluster,
                        pool=cluster,
                        room=4,
                        width=width,
                        position=position,
                        probability=chance,
                        cost_usd=price * width,
                        node_hours=float(width),
                    )
                )
    return results


choices = st.composite(synthetic)()


def brute_force(result, group, target, limits):
    """The least penalty over all subsets that keep the rules."""
    best = None
    for size in range(len(result) + 1):
        for subset in itertools.combinations(result, size):
            lanes = {}
            for c in subset:
                lanes.setdefault(c.cluster, []).append(c)
            whole = all(
                len({c.width for c in lane}) == 1
                and sorted(c.position for c in lane) == list(range(1, len(lane) + 1))
                and (group.coupling == "loose" or sum(c.width for c in lane) >= group.least)
                for lane in lanes.values()
            )
            enough = sum(c.width * c.probability for c in subset) >= target - 1e-9
            if whole and enough and limits.allow(subset):
                price = sum(compute_penalty(c, group) for c in subset)
                best = price if best is None else min(best, price)
    return best


@given(
    choices,
    st.sampled_from(["tight", "loose"]),
    st.floats(0.2, 6),
    st.sampled_from([None, 1.0, 3.0]),
)
def test_the_programme_finds_the_best_and_the_greedy_choice_keeps_the_rules(
    result, coupling, target, budget
):
    group = NodeGroup(name="g", coupling=coupling, least=2, most=4)
    limits = RemainingLimits(budget_usd=budget, node_hours={"a": 3.0}, used={}, taken={})
    best = brute_force(result, group, target, limits)
    exact, quick = solve(result, group, target, limits), greedy(result, group, target, limits)
    assert (exact is None) == (best is None)
    if exact is not None:
        assert sum(compute_penalty(c, group) for c in exact.choices) == pytest.approx(
            best, rel=0.011
        )
    if quick is not None:
        assert best is not None
        assert limits.allow(quick.choices)
        assert sum(compute_penalty(c, group) for c in quick.choices) >= best - 1e-9


def test_greedy_alone_serves_the_same_requests(catalog):
    text = "grid a for 1h by 2h with 99% {{ x = {} 4 nodes [cores >= 2] }}"
    for coupling in ("tight", "loose"):
        offer = ask(catalog, text.format(coupling), solver=greedy)
        assert offer.enough
        assert offer.groups[0].solver == "greedy"


def test_narrow_slots_are_taken_where_they_come_sooner():
    class Oracle:
        """A queue that lets narrow jobs pass and wide ones wait for ever."""

        def group(self, procs, walltime_s, ahead=0):
            return procs * 100 + ahead

        def probability(
            self, procs, walltime_s, within_s, confidence=0.95, ahead=0, submit_in_s=0.0
        ):
            return np.full(np.shape(within_s), 0.97 if procs <= 4 else 0.05)

    queue = Queue(
        name="q", history=None, log_queue=None, max_procs=64, max_walltime_s=1e6, max_jobs=8
    )
    catalog = Catalog(
        sites=(Site(name="s", kind="batch", procs=64, nodes=(NodeType(),), queues=(queue,)),),
        links={},
    )
    request = parse_request("grid a for 1h by 2h { x = tight 16 nodes }", "t")
    knowledge = Knowledge(oracles={("s", "q"): Oracle()})
    offer = procure(catalog, knowledge, request)
    offer.check()
    assert offer.enough
    assert {c.width for c in offer.groups[0].choices} == {4}
    slot_options, _ = group_choices(catalog, knowledge, request, request.groups[0])
    assert max(c.probability for c in slot_options if c.width == 16) < 0.1


def test_a_queue_that_cannot_hold_the_request_says_why():
    catalog = load_catalog(DATA / "sites.toml")
    request = parse_request("grid a for 30h by 40h { x = tight 20 nodes }", "t")
    _, left_out = group_choices(catalog, Knowledge(), request, request.groups[0])
    reasons = {e.place: e.reason for e in left_out}
    assert reasons["mayhem/default"] == "jobs may take 1d, 1d 6h are needed"
    assert "20 are needed in one cluster" in reasons["ucsbeuca/nodes"]


def test_surplus_is_cancelled_once_enough_was_granted():
    def requests(*granted):
        rows = (("a1", "a", 2), ("a2", "a", 2), ("b1", "b", 4))
        return [BindingRequest(id=i, cluster=c, nodes=n, granted=i in granted) for i, c, n in rows]

    assert find_surplus(requests("a1"), 4, tight=True) == ()
    assert find_surplus(requests("b1"), 4, tight=True) == ("a1", "a2")
    assert find_surplus(requests("a1", "b1"), 4, tight=True) == ("a1", "a2")
    assert find_surplus(requests("a1", "a2"), 4, tight=False) == ("b1",)
    assert find_surplus(requests("a1", "a2", "b1"), 4, tight=False) == ("b1",)


def test_document_fields_are_checked():
    with pytest.raises(InputError, match=r"groups\.0\.rank"):
        parse_request_document(
            {
                "name": "a",
                "duration": 1,
                "deadline": 2,
                "groups": [{"name": "x", "nodes": 1, "rank": "luck"}],
            },
            "w",
        )
