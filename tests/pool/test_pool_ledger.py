"""The ledger of pools: in the database, over HTTP, with tokens, on pages; and what pools make of it
together."""

import urllib.request
from collections import Counter

import pytest

from tests.pool.pooling import MANAGER
from tests.portal.serving import serving
from vgrads.api.pools.document import PoolDocument
from vgrads.api.pools.ledger import LedgerEntries, sum_decided
from vgrads.api.pools.view import PoolMemory, PoolStatus, decide_now, entry_of
from vgrads.kernel.errors import InputError
from vgrads.pool.time_slice import share_by_turns
from vgrads.portal.cli.pools.ledger import ServiceLedger
from vgrads.portal.client import Client
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.pools import PoolLedger
from vgrads.portal.records.store import Store

DOCUMENT = PoolDocument(name="p", max_workers=64)


def decided(managers, document=DOCUMENT, here=None, memory=None):
    entries = LedgerEntries(managers=managers)
    return decide_now(entries, document, here or PoolStatus(now_s=0.0), memory or PoolMemory())


@pytest.fixture
def ledger(tmp_path):
    with Store(f"sqlite:///{tmp_path}/one.db") as store:
        yield PoolLedger(store.engine)


def test_what_is_published_is_read_until_it_is_too_old_or_withdrawn(ledger):
    first = ledger.publish_manager("sweep.1", MANAGER)
    assert not first.pools
    ledger.publish_pool(
        "p",
        entry_of(
            DOCUMENT, "run", decided([MANAGER | {"name": "sweep.1"}])[0], PoolStatus(now_s=0.0)
        ),
    )
    status = ledger.publish_manager("sweep.1", MANAGER)
    assert sum_decided(status, "sweep.1")["p"] > 0
    assert sum_decided(status, "another") == {}  # a pool that has not seen it has decided nothing
    assert [manager["waiting"] for manager in status.managers] == [90]
    ledger.publish_manager("late.1", MANAGER | {"id": "x", "period_s": -1.0})
    assert [manager["name"] for manager in ledger.read().managers] == [
        "sweep.1"
    ]  # too old by its own word
    ledger.withdraw("manager", "sweep.1")
    ledger.withdraw("pool", "p")
    assert ledger.read() == LedgerEntries(managers=[], pools=[])
    assert len(ledger.moments("p")) == 1


def test_a_name_belongs_to_who_has_it(ledger):
    ledger.publish_manager("sweep.1", MANAGER)
    with pytest.raises(InputError, match="already in use"):
        ledger.publish_manager("sweep.1", MANAGER | {"id": "bag-2"})
    with pytest.raises(InputError, match="not a valid name"):
        ledger.publish_manager('a b"c', MANAGER)
    with pytest.raises(InputError, match="larger"):
        ledger.publish_manager("big", MANAGER | {"contact": "x" * 2_000_000})


def test_the_service_keeps_the_ledger_and_tells_secrets_to_lenders_only(tmp_path):
    def token(*scopes, user="ada"):
        with Store(f"sqlite:///{tmp_path}/vgrads.db") as store:
            return AccessControl(store.engine).create(user, scopes, 3600.0)[0]

    leases, reads, other = token("pool"), token("read"), token("pool", "read", user="eve")
    with serving(tmp_path) as served:
        mine = ServiceLedger(Client(served.url, token=leases))
        looks = Client(served.url, token=reads)
        mine.publish_manager("sweep.1", MANAGER)
        result = decided(mine.read().managers)[0]
        mine.publish_pool("p", entry_of(DOCUMENT, "run", result, PoolStatus(now_s=0.0)))
        assert (
            0 < result.shares["sweep.1"] < 100 - 4
        )  # less than the work: the up-link would not bear it
        payload = sum_decided(mine.publish_manager("sweep.1", MANAGER), "sweep.1")
        assert payload == {"p": result.shares["sweep.1"]}
        assert mine.read().managers[0]["key"] == "secret-key"
        assert "secret-key" not in repr(looks.managers())
        assert looks.pools()[0]["decisions"] == result.shares
        assert Client(served.url, token=other).managers() == []
        for client, words in (
            (looks, "scope"),
            (Client(served.url, token=other), "belongs to another user"),
        ):
            with pytest.raises(InputError, match=words):
                client.publish("manager", "sweep.1", MANAGER)
        for field, value in (
            ("waiting", -1),
            ("key", 7),
            ("period_s", 0),
            ("nonsense", 1),
            ("capacity", {"low": "x"}),
        ):
            with pytest.raises(InputError, match=field):
                mine.publish_manager("sweep.2", MANAGER | {field: value})
        mine.withdraw("manager", "sweep.1")
        assert not looks.managers()


def test_pages_show_pools_managers_and_why(tmp_path):
    with serving(tmp_path) as served:

        def page(path):
            with urllib.request.urlopen(served.url + path) as answer:
                return answer.read().decode()

        assert "No pools yet" in page("/pools")
        mine = ServiceLedger(served.client())
        for waiting in (90, 80):
            mine.publish_manager("sweep.1", MANAGER | {"waiting": waiting})
            result = decided(mine.read().managers)[0]
            mine.publish_pool("p", entry_of(DOCUMENT, "run", result, PoolStatus(now_s=0.0)))
        assert "up-link" in page("/pools") and "sweep.1" in page("/pools")
        shown = page("/pools/p")
        assert "<polyline" in shown and "capacity of the managers" in shown
        assert all(reason in shown for reason in ("size sweep.1", "share sweep.1", "total"))


def test_managers_whose_hosts_are_too_few_for_all_take_turns():
    shares = {"a": 4, "b": 4}
    needs = {"a": (10, 1.0), "b": (10, 1.0)}
    assert (
        share_by_turns(shares, needs, {"a": 2}, {"b": 0.5}, 1.0) == shares
    )  # b has not waited long
    assert share_by_turns(shares, needs, {"a": 2}, {"b": 2.0}, 1.0) == {"a": 1, "b": 4}
    assert (
        share_by_turns(shares, needs, {"a": 1, "b": 1}, {"b": 9.0}, 1.0) == shares
    )  # that is fair


def test_workers_are_never_more_than_the_pool_may_have():
    document = PoolDocument(name="p", max_workers=10, policy="d1")
    managers = [
        MANAGER | {"name": n, "by_pool": {}, "procs": 0, "capacity": None} for n in ("a", "b")
    ]
    here = PoolStatus(now_s=60.0, running={"a": 10})
    result, memory = decided(managers, document, here, PoolMemory(at_s=45.0, shares={"a": 10}))
    assert result.shares == {"a": 5, "b": 5}
    assert sum(result.targets.values()) == 10  # b waits until a has let go
    here = PoolStatus(now_s=75.0, running={"a": 6})
    assert decided(managers, document, here, memory)[0].targets == {"a": 6, "b": 4}


def test_five_pools_and_twenty_managers_ask_for_what_is_needed_and_no_more():
    """Row 18: each pool decides by itself, at its own time; what it asks for comes three periods
    later."""
    need = {f"m{n}": 20 + 7 * n for n in range(20)}
    pools = [PoolDocument(name=f"p{n}", max_workers=900, policy="d1") for n in range(5)]
    have = {pool.name: Counter() for pool in pools}
    waiting = {pool.name: Counter() for pool in pools}
    memory = {pool.name: PoolMemory() for pool in pools}
    entries, peak = {}, 0
    for step in range(200):
        now_s, pool = 3.0 * step, pools[step % 5]
        leased = {m: {p: have[p][m] for p in have if have[p][m]} for m in need}
        managers = [
            MANAGER
            | {
                "name": m,
                "capacity": None,
                "running": sum(leased[m].values()),
                "by_pool": leased[m] | {"": 3},
                "waiting": need[m] - sum(leased[m].values()),
                "procs": sum(leased[m].values()) + 3,
            }
            for m in need
        ]
        others = [e | {"age_s": now_s - at_s, "name": name} for name, (at_s, e) in entries.items()]
        here = PoolStatus(
            now_s=now_s, running=dict(have[pool.name]), waiting=dict(waiting[pool.name]), wait_s=9.0
        )
        status = LedgerEntries(managers=managers, pools=others)
        decided, memory[pool.name] = decide_now(status, pool, here, memory[pool.name])
        entries[pool.name] = (now_s, entry_of(pool, pool.name, decided, here))
        for m in need:
            waiting[pool.name][m] = max(0, decided.targets.get(m, 0) - have[pool.name][m])
            have[pool.name][m] = min(
                have[pool.name][m], decided.shares.get(m, 0) or have[pool.name][m]
            )
        if step % 3 == 2:
            for name in have:
                have[name] += waiting[name]
                waiting[name] = Counter()
        peak = max(peak, sum(sum(c.values()) for c in (*have.values(), *waiting.values())))
    required = sum(count - 3 for count in need.values())
    total = sum(sum(counts.values()) for counts in have.values())
    assert abs(total - required) <= 0.02 * required, (total, required)
    assert peak <= 1.02 * required + len(need), (peak, required)
