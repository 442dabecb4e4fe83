"""What batch systems print of announced closures: reservations, maintenance, calendars of queues.

The text of Slurm 22.05 and Grid Engine 8.1.9 was printed by these; that of PBS follows the manual
of pbs_rstat.
"""

from datetime import datetime

import pytest

from vgrads.drivers.api import SiteAccess
from vgrads.drivers.calendars import read_calendar
from vgrads.drivers.gridengine import GridEngine
from vgrads.drivers.pbs import Pbs
from vgrads.drivers.slurm import Slurm
from vgrads.kernel.errors import SiteError

HOUR_S = 3600.0
NOW_S = 1_795_835_000.0  # here; the sites' clocks are ten minutes ahead
NODES = "--nodes--\n" + "\n".join(["n1|debug|8", *(f"n{n}|batch|8" for n in (1, 2, 3, 4))])


def slurm_line(name, begin, end, nodes, cpus, flags="SPEC_NODES", licences="(null)"):
    return (
        f"ReservationName={name} StartTime={begin} EndTime={end} Duration=02:00:00 Nodes={nodes} "
        f"NodeCnt=4 CoreCnt={cpus} Features=(null) PartitionName=(null) Flags={flags} "
        f"TRES=cpu={cpus} Users=root Groups=(null) Accounts=(null) Licenses={licences} "
        "State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)"
    )


def slurm(*lines, access=None, now="1795835600 2026-11-28T03:13:20"):
    printed = "\n".join([now, *lines, NODES])
    closures = Slurm().closures(printed, NOW_S, access or SiteAccess())
    for closure in closures:
        closure.check()
        assert closure.reported
    return [
        (
            (c.begin_s - NOW_S) / HOUR_S,
            (c.end_s - NOW_S) / HOUR_S,
            c.words,
            c.left,
            sorted(c.queues),
        )
        for c in closures
    ]


def at(hours):
    return str(round(1_795_835_600 + hours * HOUR_S))


MAINT = slurm_line("m1", at(2), at(4), "n[1-4]", 32, "MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES")


def test_a_maintenance_of_all_nodes_closes_all_queues_by_the_difference_of_the_clocks():
    assert slurm(MAINT) == [(2.0, 4.0, "maintenance", 0, [])]
    assert slurm("No reservations in the system") == []


def test_older_versions_print_local_times():
    line = slurm_line("m1", "2026-11-28T05:13:20", "2026-11-28T07:13:20", "n[1-4]", 32, "MAINT")
    assert slurm(line) == [(2.0, 4.0, "maintenance", 0, [])]


def test_a_reservation_of_some_nodes_leaves_the_others():
    course = slurm_line("course", at(1), at(3), "n[1-2]", 16)
    assert slurm(course) == [
        (1.0, 3.0, "reservation course", 0, ["debug"]),
        (1.0, 3.0, "reservation course", 16, ["batch"]),
    ]
    # overlapping ones together, each processor once
    assert slurm(course, MAINT, slurm_line("cores", at(1), at(2), "n4", 3)) == [
        (1.0, 2.0, "reservation course", 0, ["debug"]),
        (1.0, 2.0, "reservation course", 13, ["batch"]),
        (2.0, 3.0, "maintenance", 0, []),
        (3.0, 4.0, "maintenance", 0, []),
    ]


def test_reservations_that_our_jobs_name_and_those_of_licences_close_nothing():
    own = slurm_line("ours", at(1), at(3), "n[1-4]", 32)
    assert slurm(own, access=SiteAccess(reservation="ours")) == []
    assert slurm(own, access=SiteAccess(options=("--reservation=ours",))) == []
    assert len(slurm(own, access=SiteAccess(account="root"))) == 1
    assert slurm(slurm_line("ansys", at(1), at(3), "(null)", 0, licences="ansys:4")) == []


def test_a_reservation_of_every_week_is_repeated():
    results = slurm(slurm_line("weekly", at(1), at(3), "n[1-4]", 32, "MAINT,WEEKLY"))
    assert [begin for begin, *_ in results[:3]] == [1.0, 169.0, 337.0]
    assert len(results) == 14


def test_a_running_reservation_began_in_the_past():
    assert slurm(slurm_line("m", at(-5), at(3), "n[1-4]", 32, "MAINT"))[0][:2] == (-5.0, 3.0)


@pytest.mark.parametrize("printed", ["", "error", "1795835600\nx", "no clock\n" + MAINT])
def test_text_that_is_none_of_these_is_an_error_of_the_site(printed):
    for dialect in (Slurm(), Pbs(), GridEngine()):
        with pytest.raises(SiteError, match="printed no clock"):
            dialect.closures(printed, NOW_S, SiteAccess())


PBS = """\
1795835600 2026-11-28T03:13:20
Resv ID: R12.server
Reserve_Name = course
Reserve_Owner = pi@login
reserve_state = RESV_CONFIRMED
reserve_start = Sat Nov 28 04:13:20 2026
reserve_end = Sat Nov 28 06:13:20 2026
reserve_duration = 7200
queue = R12
Resource_List.ncpus = 12
resv_nodes = (n1:ncpus=8)+(n2:ncpus=4)

Resv ID: M13.server
reserve_state = RESV_CONFIRMED
reserve_start = Sat Nov 28 07:13:20 2026
reserve_end = Sat Nov 28 09:13:20 2026
queue = M13
resv_nodes = (n1:ncpus=8)+(n2:ncpus=8)

Resv ID: R14.server
reserve_state = RESV_UNCONFIRMED
reserve_start = Sat Nov 28 04:13:20 2026
reserve_end = Sat Nov 28 06:13:20 2026

--vgrads-next--
n1
     Mom = n1
     state = free
     resources_available.ncpus = 8
     resources_available.mem = 16gb

n2
     Mom = n2
     resources_available.ncpus = 8
"""


def test_pbs_reservations_take_processors_and_those_of_maintenance_nodes():
    def spans(access):
        return [
            ((c.begin_s - NOW_S) / HOUR_S, (c.end_s - NOW_S) / HOUR_S, c.words, c.left)
            for c in Pbs().closures(PBS, NOW_S, access)
        ]

    maintenance = (4.0, 6.0, "maintenance", 0)
    assert spans(SiteAccess()) == [(1.0, 3.0, "reservation R12", 4), maintenance]
    assert spans(SiteAccess(reservation="R12")) == [maintenance]


GRID_ENGINE = """\
1795835600 2026-11-28T03:13:20
qname                 batch.q
calendar              night
qname                 other.q
calendar              NONE
--vgrads-next--
calendar_name    night
year             5.12.2026=18-24=off 6.12.2026-7.12.2026=off \\
                 8.dec.2026=0-8=suspended
week             NONE
"""


def test_calendars_of_grid_engine_close_their_queues():
    (closure,) = GridEngine().closures(GRID_ENGINE, NOW_S, SiteAccess())
    begin_s = (
        NOW_S + (datetime(2026, 12, 5, 18) - datetime(2026, 11, 28, 3, 13, 20)).total_seconds()
    )
    assert (closure.begin_s, closure.end_s) == (begin_s, begin_s + 62 * HOUR_S)
    assert closure.queues == {"batch.q"}
    assert closure.words == "calendar night"


@pytest.mark.parametrize(
    ("year", "week", "spans"),
    [
        ("NONE", "NONE", []),
        ("NONE", "sat=off", [(0, 24)]),
        ("NONE", "mon-fri=22-6", [(48, 54), (70, 78), (94, 96)]),
        ("NONE", "fri-sun=off", [(0, 48)]),
        ("NONE", "sat-mon=8:30-12=suspended", [(8.5, 12), (32.5, 36), (56.5, 60)]),
        ("28.11.2026-30.11.2026=on", "sat-mon=off", []),
        ("29.nov.2026,30.11.2026=8-12", "NONE", [(32, 36), (56, 60)]),
        ("NONE", "18-8", [(0, 8), (18, 32), (42, 56), (66, 80), (90, 96)]),
    ],
)
def test_rules_of_calendars(year, week, spans):
    saturday = datetime(2026, 11, 28)
    calendar = read_calendar({"calendar_name": "c", "year": year, "week": week})
    assert not calendar.unread
    results = calendar.closed(saturday, 4 * 24 * HOUR_S - 1)
    assert [(begin_s / HOUR_S, end_s / HOUR_S) for begin_s, end_s in results] == spans


def test_a_rule_that_is_not_understood_is_named():
    assert read_calendar({"week": "moon=off"}).unread == ("moon=off",)
    with pytest.raises(SiteError, match="night: moon=off"):
        GridEngine().closures(GRID_ENGINE.replace("NONE\n", "moon=off\n"), NOW_S, SiteAccess())
