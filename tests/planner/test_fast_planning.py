"""What the planner reckons in one go against what it means, written down plainly."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.planner.test_planner import make_set, slot, slots_strategy
from tests.workflows.test_workflows import dags
from vgrads.kernel.profile import Profile, fit, use, use_all
from vgrads.planner.placement import heft
from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.heft import compute_upward_ranks, place_heft
from vgrads.planner.plan import Placement
from vgrads.planner.promise.probability import Scenarios, WorkflowOutcome, succeed
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.catalog import Link
from vgrads.vgrid.slot import make_certain_curve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.task import Task

FORMS = pytest.mark.parametrize("form", ["plain", "fast"])
rows = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(1, 4)), max_size=15)


def in_form(monkeypatch, form):
    """Whatever is asked for many steps is called in this form."""
    for room in (use_all, heft.compute_upward_ranks, heft.place_all, succeed):
        monkeypatch.setattr(room, "after", lambda steps, room=room: getattr(room, form))


@FORMS
@settings(max_examples=examples(60))
@given(rows, rows)
def test_a_calendar_and_its_steps_give_the_same(form, first, second):
    plain = Profile(4, 60.0)
    for start_s, length_s, procs in first:
        value = plain.earliest_fit(start_s, length_s, procs, 50.0)
        if value is not None:
            plain.add(value, value + length_s, procs)
    many = Profile(4, 60.0)
    many.keep(plain.steps(0))
    steps = many.steps(len(second))
    taken = []
    for start_s, length_s, procs in second:
        value = plain.earliest_fit(start_s, length_s, procs, 50.0)
        at_s = getattr(fit, form)(steps, 4, float(start_s), float(length_s), procs, 50.0)
        assert at_s == (np.inf if value is None else value)
        if value is not None:
            plain.add(value, value + length_s, procs)
            getattr(use, form)(steps, at_s, at_s + length_s, procs)
            taken.append((value, value + length_s, procs))
    many.keep(steps)
    many.check()
    assert (many.steps(0).times_s == plain.steps(0).times_s).all()
    assert (many.steps(0).used == plain.steps(0).used).all()
    for start_s, end_s, procs in taken:
        plain.add(start_s, end_s, -procs)
    if taken:
        starts_s, ends_s, procs = (np.array(column) for column in zip(*taken, strict=True))
        getattr(use_all, form)(steps, starts_s * 1.0, ends_s * 1.0, -procs)
        many.keep(steps)
    many.check()
    for start_s, less_s, procs in (*first, *second):
        length_s = less_s + 1  # what takes no time may also stand between two full steps
        expected = plain.earliest_fit(start_s, length_s, procs, 60.0)
        assert many.earliest_fit(start_s, length_s, procs, 60.0) == expected


def plain_heft(snapshot, workflow, slots, busy):
    """By the article, instant by instant: run times and transfers are whole numbers of seconds."""
    pairs = [(a, b) for n, a in enumerate(slots) for b in slots[n + 1 :]]
    links = [
        Link(bandwidth_mib_s=np.inf, latency_s=0.0)
        if a.site == b.site
        else snapshot.links[frozenset((a.site, b.site))]
        for a, b in pairs
    ]
    latency_s = np.mean([link.latency_s for link in links] or [0])
    per_mib = np.mean([1 / link.bandwidth_mib_s for link in links] or [0])
    slowness = np.mean([1 / s.speed for s in slots])

    def rank(task):
        below = [
            latency_s + workflow.transfer_mib(task, c) * per_mib + rank(c)
            for c in workflow.children[task]
        ]
        return workflow.tasks[task].runtime_s * slowness + max(below, default=0.0)

    placed, used = {}, {s.id: busy[s.id].copy() for s in slots}
    for task in sorted(workflow.order, key=lambda t: -rank(t)):
        job, best = workflow.tasks[task], None
        for s in slots:
            length_s = int(job.runtime_s / s.speed)
            ready_s = int(s.curve.times_s[0])
            for parent in job.parents:
                source, end_s = placed[parent][0], placed[parent][2]
                ready_s = max(
                    ready_s,
                    int(end_s + snapshot.transfer_s(workflow, parent, task, (source.site, s.site))),
                )
            hope_s = ready_s + length_s
            last_s = int(min(s.end_s, snapshot.workflow_set.deadline_s))
            if job.procs > s.procs:
                continue
            for start_s in range(ready_s, last_s - length_s + 1):
                if (used[s.id][start_s : start_s + length_s] + job.procs <= s.procs).all():
                    if best is None or (start_s + length_s, hope_s) < best[:2]:
                        best = (start_s + length_s, hope_s, s, start_s)
                    break
        if best is None:
            return None
        placed[task] = (best[2], best[3], best[0])
        used[best[2].id][best[3] : best[0]] += job.procs
    return {task: (s.id, start_s, end_s) for task, (s, start_s, end_s) in placed.items()}


machines = st.lists(
    st.tuples(
        st.integers(1, 5), st.integers(0, 40), st.sampled_from([0.5, 1.0]), st.integers(0, 2)
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.more
@FORMS
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(dags(9), min_size=1, max_size=2), machines, st.sampled_from([300, 3000]))
def test_heft_places_as_the_article_says(monkeypatch, form, shapes, rows, deadline_s):
    in_form(monkeypatch, form)
    slots = tuple(
        slot(
            f"s{n}",
            procs,
            make_certain_curve(float(begin_s)),
            site=f"x{site}",
            speed=speed,
            end_s=2000.0,
        )
        for n, (procs, begin_s, speed, site) in enumerate(rows)
    )
    links = {
        frozenset((f"x{a}", f"x{b}")): Link(bandwidth_mib_s=1.0, latency_s=3.0 * (a + b))
        for a, b in ((0, 1), (0, 2), (1, 2))
    }
    workflows = [
        make_workflow(
            f"w{n}", [replace(t, runtime_s=t.runtime_s + 1) for t in w.tasks.values()], w.file_mib
        )
        for n, w in enumerate(shapes)
    ]
    snapshot = Snapshot(
        workflow_set=make_set(workflows, deadline_s=float(deadline_s)),
        slots=slots,
        links=links,
        scenarios=64,
    )
    draft, busy = Draft(snapshot), {s.id: np.zeros(4000, int) for s in slots}
    for workflow in workflows:
        expected = plain_heft(snapshot, workflow, slots, busy)
        before = draft.mark()
        assert place_heft(draft, workflow.name, slots) == (expected is not None)
        result = {p.task: (p.slot, p.start_s, p.end_s) for p in draft.since(before)}
        assert result == (expected or {})
        for p in draft.since(before):
            busy[p.slot][int(p.start_s) : int(p.end_s)] += p.procs
    for each in (draft.slots.calendar(s.id) for s in draft.snapshot.slots):
        each.check()


@FORMS
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dags(8), slots_strategy, st.data())
def test_all_copies_of_a_workflow_succeed_as_in_sequence(monkeypatch, form, workflow, rows, data):
    in_form(monkeypatch, form)
    slots = tuple(
        slot(
            f"s{n}",
            8,
            make_certain_curve(20.0 * n, sure),
            up=up,
            speed=speed,
            site=f"x{n % 3}",
            task_failure=0.1 * paid,
        )
        for n, (_, sure, up, paid, speed) in enumerate(rows)
    )
    snapshot = Snapshot(workflow_set=make_set([workflow]), slots=slots, scenarios=100)
    placed = {}
    for task_id in workflow.order:
        chosen = data.draw(st.lists(st.sampled_from(slots), max_size=3, unique=True))
        starts_s = [data.draw(st.integers(0, 400)) for _ in chosen]
        placed[task_id] = [
            Placement(
                workflow=workflow.name,
                task=task_id,
                replica=n,
                slot=s.id,
                start_s=at_s,
                end_s=at_s + 20,
                procs=1,
            )
            for n, (s, at_s) in enumerate(zip(chosen, starts_s, strict=True))
        ]
    scenarios = Scenarios(snapshot)
    at_once, stepwise = (WorkflowOutcome(workflow, scenarios) for _ in range(2))
    whole = at_once.recompute(placed, list(workflow.tasks))
    for task_id in workflow.order:
        stepwise.replicas[task_id] = [(p, stepwise.success(p)) for p in placed[task_id]]
    assert (whole == stepwise.recompute(placed, ())).all()
    for task_id in workflow.order:
        pairs = zip(at_once.replicas[task_id], stepwise.replicas[task_id], strict=True)
        assert all(p == q and (ours == plain).all() for (p, ours), (q, plain) in pairs)


def test_ranks_are_the_longest_ways_to_the_end():
    """Figure 2 of the article in small: t0 before t1 and t2, both before t3, two seconds of
    transfer each."""
    files = {f"f{n}": 2.0 for n in range(4)}
    parents = {0: (), 1: (0,), 2: (0,), 3: (1, 2)}
    tasks = [
        Task(
            id=f"t{n}",
            runtime_s=10.0 * (n + 1),
            parents=tuple(f"t{p}" for p in before),
            inputs=tuple(f"f{p}" for p in before),
            outputs=(f"f{n}",),
        )
        for n, before in parents.items()
    ]
    shape = make_workflow("w", tasks, files).shape.arrays
    for form in (compute_upward_ranks.plain, compute_upward_ranks.fast):
        assert form(shape, 1.0, 0.0, 1.0).tolist() == [84.0, 62.0, 72.0, 40.0]
