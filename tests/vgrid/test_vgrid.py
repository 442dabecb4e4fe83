"""Sites, slots, offers, virtual reservations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DATA
from tests.logs import make_log
from vgrads.kernel.errors import InputError
from vgrads.qbets.forecast import QueueForecast, forecast
from vgrads.qbets.predictor import Settings
from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.binding import find_latest_submission, learn_binding
from vgrads.vgrid.catalog import Site, load_catalog
from vgrads.vgrid.offers import Knowledge, OfferRequest, offer_slots
from vgrads.vgrid.slot import Slot, StartCurve, make_certain_curve
from vgrads.vgrid.varq import Reservation, evaluate_trajectory


def test_the_shipped_sites_are_the_papers():
    catalog = load_catalog(DATA / "sites.toml")
    assert [s.name for s in catalog.sites] == [
        "kittyhawk",
        "mayhem",
        "mercury",
        "uheuca",
        "utkeuca",
        "ucsbeuca",
        "ec2",
    ]
    assert [s.name for s in catalog.sites if s.paid] == ["ec2"]
    assert catalog.link("kittyhawk", "mayhem").bandwidth_mib_s == 20
    assert catalog.link("kittyhawk", "ec2").bandwidth_mib_s == 10
    with pytest.raises(InputError, match="known: kittyhawk"):
        catalog.site("atlantis")


SITE = '[[site]]\nname = "a"\nkind = "{kind}"\nprocs = {procs}\n{more}\n'


@pytest.mark.parametrize(
    ("kind", "procs", "more", "message"),
    [
        ("batch", 4, "", "at least one"),
        ("cloud", 0, "", r"site\.0\.procs"),
        ("cloud", 4, "slot_up = 1.5", r"site\.0\.slot_up"),
        ("cloud", 4, 'boot = "a while"', r"site\.0\.boot: 'a while' is not a duration"),
        ("cloud", 4, 'colour = "red"', r"site\.0\.colour"),
        ("castle", 4, "", r"site\.0\.kind"),
        ("batch", 4, '[[site.queue]]\nname = "q"\nmax_procs = 9', "max_procs 9 exceeds"),
        ("cloud", 4, '[[link]]\nbetween = ["a", "b"]', "unknown site 'b'"),
        ("cloud", 4, '[[site]]\nname = "a"\nkind = "cloud"\nprocs = 1', "two sites have the name"),
        ("cloud", 4, "price_usd_per_hour = ", "cannot be parsed"),
        ("cloud", 4, "price = 0.5", "'price' has no unit; write price_usd_per_hour"),
        (
            "cloud",
            4,
            '[[site.node]]\ntype = "m"\nspot_price = 1.0',
            "site.0.node.0: 'spot_price' has no unit",
        ),
        ("cloud", 4, 'speed = 2.0\n[[site.node]]\ntype = "m"', "not both"),
        ("cloud", 4, 'billing = "0s"', "billing must be above 0"),
        ("cloud", 4, 'cycle = "1m"', "cycle is for simulated batch sites"),
        ("cloud", 4, 'node_mtbf = "0s"', "node_mtbf: must be above 0"),
        (
            "cloud",
            4,
            '[[site.node]]\ntype = "m"\n[[site.node]]\ntype = "m"',
            "two node types have the name",
        ),
        ("dedicated", 4, "spot_price_usd_per_hour = 1.0", "no spot market"),
        ("batch", 4, '[[site.queue]]\nname = "q"\n[[site.node]]\ntype = "m"', "one type of node"),
    ],
)
def test_wrong_site_files_are_refused_with_the_field(write, kind, procs, more, message):
    path = write("sites.toml", SITE.format(kind=kind, procs=procs, more=more))
    with pytest.raises(InputError, match=message) as caught:
        load_catalog(path)
    assert "sites.toml" in str(caught.value)


curves = st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1)), min_size=1, max_size=20).map(
    lambda pairs: StartCurve(np.sort([t for t, _ in pairs]), np.sort([p for _, p in pairs]))
)


@given(curves, st.floats(0, 1200), st.floats(0.001, 1))
def test_curves_and_their_inverse_agree(curve, instant_s, chance):
    curve.check()
    ready = float(curve.ready_at(chance))
    assert (ready <= instant_s) == (curve.by(instant_s) >= chance) or curve.by(ready) >= chance


def slot(curve, **more):
    fields = {
        "id": "s",
        "site": "x",
        "queue": "",
        "kind": "batch",
        "procs": 4,
        "end_s": 7200.0,
        "shared": "s",
    }
    return Slot(**{**fields, "curve": curve, **more})


def test_paid_slots_cost_started_hours_of_whole_nodes():
    paid = slot(make_certain_curve(0), price_usd_per_hour=0.68, nodes=2)
    assert paid.cost_usd(0) == 0
    assert paid.cost_usd(1) == 1.36
    assert paid.cost_usd(3600) == 1.36
    assert paid.cost_usd(3601) == 2.72
    assert (
        slot(make_certain_curve(0), price_usd_per_hour=0.68, billing_s=1.0).cost_usd(1800) == 0.34
    )


@given(curves, st.lists(st.floats(0, 3000), min_size=1, max_size=4))
def test_asking_later_costs_no_probability(curve, starts):
    required = slot(curve)
    delay = find_latest_submission(required, starts)
    assert 0 <= delay <= min(starts)
    assert all(curve.by(s - delay) >= curve.by(s) - 2e-3 for s in starts)


def test_offers_carry_the_probabilities_of_the_history():
    catalog = load_catalog(DATA / "sites.toml")
    existing = forecast(make_log(500, seed=1), 1e9)
    offers = offer_slots(
        catalog,
        Knowledge(oracles={("mayhem", "default"): existing}),
        OfferRequest(procs=16, count=4, until_s=7200.0),
    )
    mayhem = next(o for o in offers if o.site == "mayhem")
    second = next(o for o in offers if o.id == "mayhem-default-2")
    assert second.curve.by(1800) == pytest.approx(
        float(existing.probability(16, 7200, 1800, ahead=1))
    )
    assert mayhem.curve.by(1800) == pytest.approx(float(existing.probability(16, 7200, 1800)))
    assert not next(o for o in offers if o.site == "mercury").curve.probabilities.any()
    assert {o.procs for o in offers if o.site == "ec2"} == {16}
    assert len({o.id for o in offers}) == len(offers)
    for offer in offers:
        offer.curve.check()


def plain_forecast():
    waits = np.sort(make_log(400, seed=1).wait_s)
    return QueueForecast(edges=(), waits_s=(waits,), since_s=0.0, settings=Settings())


def test_trajectory_takes_the_latest_instant_that_is_sure_enough():
    waits = plain_forecast()
    reservation = Reservation(procs=4, walltime_s=3600.0, start_by_s=21600.0, probability=0.9)
    path = evaluate_trajectory(waits, reservation)
    assert len(path.submit_s) == 721
    enough = np.flatnonzero(path.probabilities >= 0.9)
    assert path.chosen == enough[-1]
    assert path.walltimes_s[path.chosen] == 3600 + 21600 - path.submit_s[path.chosen]
    assert path.probabilities[0] == pytest.approx(float(waits.probability(4, 0, 21600)))


def test_a_reservation_that_cannot_be_had_gets_the_best_offer():
    waits = plain_forecast()
    path = evaluate_trajectory(
        waits, Reservation(procs=4, walltime_s=3600.0, start_by_s=600.0, probability=0.99)
    )
    assert path.chosen is None
    assert path.best == 0
    limited = Reservation(
        procs=4, walltime_s=3600.0, start_by_s=21600.0, probability=0.5, max_walltime_s=7200.0
    )
    assert not evaluate_trajectory(waits, limited).probabilities[:600].any()
    with pytest.raises(InputError):
        evaluate_trajectory(
            waits, Reservation(procs=4, walltime_s=1.0, start_by_s=-1.0, probability=0.5)
        )


CLOUD = """
[[site]]
name = "c"
kind = "cloud"
procs = 16
boot = "4m"
slot_up = 0.9
[[site.node]]
type = "small"
cores = 2
price_usd_per_hour = 0.1
[[site.node]]
type = "large"
cores = 8
memory_mib = 32000
speed = 2.0
price_usd_per_hour = 0.8
spot_price_usd_per_hour = 0.2
spot_interruptions_per_hour = 0.1
"""


def test_every_type_of_node_and_the_spot_market_are_offered(write):
    catalog = load_catalog(write("sites.toml", CLOUD))
    offers = offer_slots(catalog, Knowledge(), OfferRequest(procs=8, count=9, until_s=7200.0))
    by_id = {offer.id: offer for offer in offers}
    assert sorted(by_id) == [
        "c-large-1",
        "c-large-2",
        "c-large-spot-1",
        "c-large-spot-2",
        "c-small-1",
        "c-small-2",
    ]
    small, large, spot = (by_id[name] for name in ("c-small-1", "c-large-1", "c-large-spot-1"))
    assert (small.nodes, large.nodes, large.memory_mib, large.speed) == (4, 1, 32000, 2.0)
    assert (large.cost_usd(3600), spot.cost_usd(3600)) == (0.8, 0.2)
    assert spot.up == pytest.approx(large.up * np.exp(-0.2))


def test_nodes_that_break_cost_long_and_wide_slots_more(write):
    text = '[[site]]\nname = "a"\nkind = "dedicated"\nprocs = 64\nnode_mtbf = "1000h"\n'
    catalog = load_catalog(write("sites.toml", text))
    for procs in (1, 32):
        [offer, *_] = offer_slots(
            catalog, Knowledge(), OfferRequest(procs=procs, count=1, until_s=36000.0)
        )
        assert offer.up == pytest.approx(np.exp(-procs / 100))


def observed(site, overhead_s, count, **more):
    return [
        Acquisition(
            site=site,
            queue="",
            procs=1,
            requested_s=0.0,
            granted_s=10.0,
            ready_s=10.0 + overhead_s,
            **more,
        )
    ] * count


def test_binding_moves_from_what_is_stated_to_observations(write):
    site = load_catalog(write("sites.toml", CLOUD)).site("c")
    stated = learn_binding(site, "", [])
    assert stated.up == pytest.approx(0.9)
    assert stated.overhead.by(240) == pytest.approx(0.5, abs=0.03)
    late = learn_binding(site, "", observed("c", 900.0, 40) + observed("elsewhere", 1.0, 99))
    assert late.observed == 40
    assert late.overhead.by(600) < 0.15
    assert late.overhead.by(900) == pytest.approx(1.0, abs=0.01)
    refusals = [Acquisition(site="c", queue="", procs=1, requested_s=0.0, refused=True)] * 20
    assert learn_binding(site, "", refusals).acquire == pytest.approx(0.5)
    assert learn_binding(
        site, "", observed("c", 240.0, 20, ended_s=900.0, broken=True)
    ).up == pytest.approx(0.45)
    for observed_binding in (stated, late):
        observed_binding.overhead.check()
        observed_binding.granted_at_once().check()


def test_a_withdrawn_request_teaches_nothing(write):
    site = load_catalog(write("sites.toml", CLOUD)).site("c")
    withdrawn = [Acquisition(site="c", queue="", procs=1, requested_s=0.0, ended_s=5.0)] * 50
    assert learn_binding(site, "", withdrawn).acquire == learn_binding(site, "", []).acquire


@given(curves, st.lists(st.floats(0, 500), min_size=1, max_size=30))
def test_overhead_only_delays_what_a_queue_grants(waits, overheads):
    site = Site(name="x", kind="batch", procs=4, boot_s=60.0)
    records = [a for s in overheads for a in observed("x", s, 1)]
    ready = learn_binding(site, "", records).after(waits)
    ready.check()
    instants = np.linspace(0, 2000, 50)
    assert all(ready.by(t) <= waits.by(t) + 1e-9 for t in instants)
    assert ready.probabilities[-1] == pytest.approx(waits.probabilities[-1])


def test_a_queue_without_history_is_what_its_operator_states(write):
    text = '[[site]]\nname = "a"\nkind = "batch"\nprocs = 8\n[[site.queue]]\nname = "q"\n'
    stated = 'stated_probability = 0.8\nstated_wait = "30m"\n'
    for more, chances in (("", (0.0, 0.0)), (stated, (0.0, 0.8))):
        catalog = load_catalog(write("sites.toml", text + more))
        [offer] = offer_slots(catalog, Knowledge(), OfferRequest(procs=4, count=1, until_s=7200.0))
        assert (offer.curve.by(1799), offer.curve.by(1800)) == pytest.approx(chances)
