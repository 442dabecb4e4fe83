"""Slots as sets of instances of an EC2-compatible cloud: all of a slot's nodes, or none.

The cloud keeps no time limit, so this driver does: what has lived its duration is given back when
the next question is asked, and the instance shuts itself down a little later if nobody asks any
more. Tags say whose slot an instance is, so nothing is lost or bought twice when the manager
restarts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vgrads.drivers.api import SPOT, Access, Held, SlotSpec, SlotState, SlotStatus, Survey, mark
from vgrads.drivers.ledger import LedgerDriver
from vgrads.drivers.pilot import environment_exports
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import SiteError
from vgrads.kernel.units import billed_s

TAG_SLOT, TAG_RUN, TAG_SECONDS, TAG_USD = (
    "vgrads-slot",
    "vgrads-run",
    "vgrads-seconds",
    "vgrads-usd",
)
_WRONG = re.compile(r"Invalid|NotFound|Malformed|Unsupported|MissingParameter|Unknown|disabled")
_GUARD_S = 120  # the instance's own end comes this much after ours
_LARGEST_USER_DATA = 16384
_USER_DATA = """\
#!/bin/sh
# A slot of vgrads.
( sleep {guard} && shutdown -h now ) >/dev/null 2>&1 </dev/null &
{exports}
cd "${{HOME:-/}}" || cd /
{pilot}
"""
_WHICH_NODE = """
M="${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}/latest"
T=$(curl -sf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$M/api/token")
VGRADS_NODE=$(curl -sf -m 5 ${T:+-H "X-aws-ec2-metadata-token: $T"} "$M/meta-data/ami-launch-index")
[ -n "$VGRADS_NODE" ] || { echo 'the cloud does not tell which node this is'; exit 69; }
export VGRADS_NODE"""
"""All instances of a purchase get one script; the cloud itself tells each its number."""


class CapacityError(Exception):
    """The cloud refuses a request, in its own words: no capacity, a quota, an unknown image."""

    @property
    def permanent(self) -> bool:
        """True for what is not about how much there is: no such image, type, key or group."""
        return bool(_WRONG.search(str(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a node costs, and in which units it is billed."""

    usd_per_hour: float = 0.0
    spot_usd_per_hour: float | None = None
    billing_s: float = 3600.0

    def cost_usd(self, nodes: int, seconds: float, spot: bool) -> float:
        """The most that holding these nodes this long can cost."""
        rate = (
            self.spot_usd_per_hour
            if spot and self.spot_usd_per_hour is not None
            else self.usd_per_hour
        )
        return nodes * billed_s(seconds, self.billing_s) / 3600.0 * rate


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """A request for instances. ``token`` makes it one purchase, however often it is sent."""

    name: str
    token: str
    nodes: int
    node_type: str
    user_data: str
    tags: Mapping[str, str]
    spot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance that bears our tags. ``state`` in EC2's words; ``ok``: it has booted."""

    id: str
    state: str
    ok: bool
    tags: Mapping[str, str]
    age_s: float = 0.0
    reason: str = ""

    @property
    def alive(self) -> bool:
        """True where it costs money."""
        return self.state in ("pending", "running")


class CloudApi(Protocol):
    """What is needed of a cloud. Errors: SiteError, and CapacityError where it refuses."""

    def buy(self, purchase: Purchase) -> list[str]:
        """Start instances, all or none; their ids."""

    def instances(self) -> list[Instance]:
        """All that bear our tags, ended ones as long as the cloud tells of them."""

    def terminate(self, ids: Sequence[str]) -> None:
        """End these; ended and unknown ones are no error."""

    def survey(self, node_types: Sequence[str]) -> Survey:
        """Whether image, key, security groups and these types are there."""


@dataclass(slots=True)
class _Slot:
    """A slot at the cloud: what was bought, and since when it runs."""

    seconds: float
    usd: float
    ids: list[str] = field(default_factory=list)
    began_s: float | None = None
    vanished: int = 0


class CloudDriver(LedgerDriver):
    """The driver of one cloud. ``prices``: node type → price; limits count what may be spent at
    most."""

    def __init__(
        self, site: str, api: CloudApi, clock: Clock, access: Access, prices: Mapping[str, Price]
    ) -> None:
        super().__init__(clock)
        self.site, self.access = site, access
        self._api, self._prices = api, prices
        self._slots: dict[str, _Slot] = {}
        self._seen: set[str] = set()  # slots of all our instances at the last look
        self._unsure = True  # instances may be there that an earlier manager bought

    # the three verbs

    def submit(self, spec: SlotSpec) -> None:
        if spec.id in self._slots or self._ended(spec.id):
            return
        if self._unsure or spec.id in self._seen:
            self._look([spec.id])
            self._unsure = False
        if spec.id in self._slots or self._ended(spec.id):
            return
        usd = self._price(spec).cost_usd(spec.nodes, spec.duration_s, spec.queue == SPOT)
        self._ledger.move(spec.id, SlotState.REQUESTED, self._clock.now())
        over = self._over_limit(usd)
        if over:
            self._fail(spec.id, over, permanent=True)
            return
        try:
            ids = self._api.buy(self._purchase(spec, usd))
        except CapacityError as error:
            self._fail(spec.id, f"refused: {error}", error.permanent)
            return
        except SiteError as error:
            self._unsure = self._unsure or error.transient
            self._ledger.forget(spec.id)
            raise
        self._slots[spec.id] = _Slot(seconds=spec.duration_s, usd=usd, ids=ids)
        self._ledger.move(spec.id, SlotState.QUEUED, self._clock.now())

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        if any(not self._ended(slot) for slot in slots):
            self._look(slots)
        return self._ledger.status(slots, self._clock.now())

    def cancel(self, slot: str) -> None:
        if slot not in self._slots:
            self._look([slot])
        if slot in self._slots and not self._ended(slot):
            self._api.terminate(self._slots[slot].ids)
            self._ledger.move(slot, SlotState.RELEASED, self._clock.now(), "released")

    # what else a real site can tell

    def survey(self) -> Survey:
        """Whether everything that a purchase needs is there."""
        return self._api.survey(sorted(self._prices))

    def held(self) -> list[Held]:
        """Instances that bear our tags and cost money."""
        return [
            Held(
                handle=one.id,
                name=mark(one.tags[TAG_SLOT]),
                slot=one.tags[TAG_SLOT],
                run=one.tags.get(TAG_RUN, ""),
                state=SlotState.READY if one.ok else SlotState.GRANTED,
                age_s=one.age_s,
            )
            for one in self._api.instances()
            if one.alive
        ]

    def sweep(self, handles: Sequence[str]) -> None:
        """End these instances."""
        if handles:
            self._api.terminate(handles)

    # inside

    def _fail(self, slot: str, reason: str, permanent: bool = False) -> None:
        self._ledger.move(slot, SlotState.FAILED, self._clock.now(), reason, permanent)

    def _price(self, spec: SlotSpec) -> Price:
        if spec.node_type not in self._prices:
            raise SiteError(f"no node type '{spec.node_type}'", site=self.site, transient=False)
        return self._prices[spec.node_type]

    def _over_limit(self, usd: float) -> str:
        limit = self.access.spend_limit_usd
        committed = sum(slot.usd for slot in self._slots.values())
        if limit is None or committed + usd <= limit + 1e-9:
            return ""
        return (
            f"spend limit: this slot may cost ${usd:.2f}, ${committed:.2f} of ${limit:.2f} are "
            "committed"
        )

    def _purchase(self, spec: SlotSpec, usd: float) -> Purchase:
        tags = {
            TAG_SLOT: spec.id,
            TAG_RUN: spec.id.partition(".")[0],
            TAG_SECONDS: f"{spec.duration_s:.0f}",
            TAG_USD: f"{usd:.4f}",
        }
        return Purchase(
            name=mark(spec.id),
            token=mark(spec.id),
            nodes=spec.nodes,
            node_type=spec.node_type,
            tags=tags,
            user_data=user_data(spec),
            spot=spec.queue == SPOT,
        )

    def _look(self, asked: Sequence[str]) -> None:
        """One question: all our instances, taken over into the ledger; what has lived its time
        ends.

        Instances of slots that nobody asked about here belong to somebody else and are left alone.
        """
        now = self._clock.now()
        found: dict[str, list[Instance]] = {}
        for one in self._api.instances():
            found.setdefault(one.tags[TAG_SLOT], []).append(one)
        self._seen = set(found)
        for slot_id in asked:
            if slot_id in found:
                self._adopt(slot_id, found[slot_id], now)
        for slot_id, slot in self._slots.items():
            if not self._ended(slot_id):
                self._note(slot_id, slot, found.get(slot_id, []), now)

    def _adopt(self, slot_id: str, instances: list[Instance], now: float) -> None:
        """Take over what an earlier manager bought, if this slot is asked for again."""
        if slot_id not in self._slots:
            tags = instances[0].tags
            usd, seconds = float(tags.get(TAG_USD, 0.0)), float(tags.get(TAG_SECONDS, math.inf))
            began_s = now - max(one.age_s for one in instances)
            self._slots[slot_id] = _Slot(
                seconds=seconds, usd=usd, ids=[i.id for i in instances], began_s=began_s
            )

    def _note(self, slot_id: str, slot: _Slot, instances: list[Instance], now: float) -> None:
        """What the instances of one slot say about it."""
        if len(instances) < len(slot.ids):
            self._note_absence(slot_id, slot)
            return
        slot.ids = [one.id for one in instances]
        dead = [one for one in instances if not one.alive]
        if slot.began_s is not None and now >= slot.began_s + slot.seconds:
            self._end(slot_id, slot, SlotState.EXPIRED, "reached its end")
        elif dead:
            reason = dead[0].reason or dead[0].state
            self._end(slot_id, slot, SlotState.FAILED, f"instance {dead[0].id} is gone: {reason}")
        else:
            slot.began_s = now if slot.began_s is None else slot.began_s
            self._ledger.move(slot_id, SlotState.GRANTED, slot.began_s)
            if all(one.ok for one in instances):
                self._ledger.move(slot_id, SlotState.READY, now)

    def _note_absence(self, slot_id: str, slot: _Slot) -> None:
        """Clouds show new instances late and ended ones for a while only: patience, then lost."""
        slot.vanished += 1
        if slot.vanished >= 5:
            self._end(slot_id, slot, SlotState.FAILED, "instances are gone without a trace")

    def _end(self, slot_id: str, slot: _Slot, state: SlotState, reason: str) -> None:
        """Give back what is left of a slot, all of it, then note its end."""
        self._api.terminate(slot.ids)
        self._ledger.move(slot_id, state, self._clock.now(), reason)


def user_data(spec: SlotSpec) -> str:
    """The script that an instance runs when it has booted; SiteError where it is too long for
    EC2."""
    exports = environment_exports(spec)
    if spec.every_node:
        exports += f"\nexport VGRADS_NODE=0 VGRADS_NODES={spec.nodes}"
        exports += _WHICH_NODE if spec.nodes > 1 else ""
    text = _USER_DATA.format(
        guard=round(spec.duration_s) + _GUARD_S,
        exports=exports,
        pilot=spec.pilot or "true",
    )
    if len(text.encode()) > _LARGEST_USER_DATA:
        raise SiteError(
            "the pilot is over EC2's 16 KiB of user data", site=spec.site, transient=False
        )
    return text
