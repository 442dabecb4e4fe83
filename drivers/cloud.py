"""Slots as sets of instances of an EC2-compatible cloud: all of a slot's nodes, or none.

The cloud enforces no time limit, so this driver does: instances that have reached their duration
are terminated at the next poll, and shut themselves down a little later if polling stops. Tags name
the slot of each instance, so a restarted manager neither loses instances nor buys them twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vgrads.drivers.api import (
    SPOT,
    MarkedJob,
    SiteAccess,
    SlotSpec,
    SlotState,
    SlotStatus,
    Survey,
    mark,
)
from vgrads.drivers.every_node import KEY
from vgrads.drivers.ledger import LedgerDriver
from vgrads.drivers.pilot import write_exports
from vgrads.drivers.shell import quote
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import SiteError
from vgrads.kernel.units import billed_usd

TAG_SLOT, TAG_RUN, TAG_SECONDS, TAG_USD = (
    "vgrads-slot",
    "vgrads-run",
    "vgrads-seconds",
    "vgrads-usd",
)
_WRONG = re.compile(r"Invalid|NotFound|Malformed|Unsupported|MissingParameter|Unknown|disabled")
_GUARD_S = 120  # instances shut themselves down this much later
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
"""All instances of a purchase run one script; the cloud's metadata service returns the number of
each."""


class CapacityError(Exception):
    """The cloud refuses a request, with its message: no capacity, a quota, an unknown image."""

    @property
    def permanent(self) -> bool:
        """True unless the refusal is about capacity: no such image, type, key or group."""
        return bool(_WRONG.search(str(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePrice:
    """Price of a node, and the units in which it is billed."""

    usd_per_hour: float = 0.0
    spot_usd_per_hour: float | None = None
    billing_s: float = 3600.0

    def cost_usd(self, nodes: int, seconds: float, spot: bool) -> float:
        """Return the maximum cost of holding these nodes for this time."""
        rate = (
            self.spot_usd_per_hour
            if spot and self.spot_usd_per_hour is not None
            else self.usd_per_hour
        )
        return billed_usd(nodes, seconds, self.billing_s, rate)


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """A request for instances. ``token`` makes it one purchase, even if it is sent repeatedly."""

    name: str
    token: str
    nodes: int
    node_type: str
    user_data: str
    tags: Mapping[str, str]
    spot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance with tags of vgrads. ``state``: as EC2 names it; ``ok``: it has booted."""

    id: str
    state: str
    ok: bool
    tags: Mapping[str, str]
    age_s: float = 0.0
    reason: str = ""

    @property
    def alive(self) -> bool:
        """True if the instance costs money."""
        return self.state in ("pending", "running")


class CloudApi(Protocol):
    """The interface of a cloud. Errors: SiteError, and CapacityError for a refusal."""

    def buy(self, purchase: Purchase) -> list[str]:
        """Start instances, all or none; return their ids."""

    def instances(self) -> list[Instance]:
        """Return all instances with tags of vgrads; terminated ones as long as the cloud lists
        them."""

    def terminate(self, ids: Sequence[str]) -> None:
        """Terminate these instances; terminated and unknown ones are no error."""

    def survey(self, node_types: Sequence[str]) -> Survey:
        """Check that image, key, security groups and these node types exist."""


@dataclass(slots=True)
class _CloudSlot:
    """A slot at the cloud: its purchase, and when it started."""

    seconds: float
    usd: float
    ids: list[str] = field(default_factory=list)
    began_s: float | None = None
    vanished: int = 0


class CloudDriver(LedgerDriver):
    """Driver of one cloud. ``prices``: node type → price; limits apply to the maximum cost."""

    def __init__(
        self,
        site: str,
        api: CloudApi,
        clock: Clock,
        access: SiteAccess,
        prices: Mapping[str, NodePrice],
    ) -> None:
        super().__init__(clock)
        self.site, self.access = site, access
        self._api, self._prices = api, prices
        self._slots: dict[str, _CloudSlot] = {}
        self._listed: set[str] = set()  # slots of all our instances at the last poll
        self._uncertain = True  # instances may be there that an earlier manager bought

    # driver interface

    def submit(self, spec: SlotSpec) -> None:
        if spec.id in self._slots or self._ended(spec.id):
            return
        if self._uncertain or spec.id in self._listed:
            self._look([spec.id])
            self._uncertain = False
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
            # the purchase may have arrived: the next one looks for instances first
            self._uncertain = self._uncertain or error.transient
            self._ledger.forget(spec.id)
            raise
        self._slots[spec.id] = _CloudSlot(seconds=spec.duration_s, usd=usd, ids=ids)
        self._ledger.move(spec.id, SlotState.QUEUED, self._clock.now())

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        if any(not self._ended(slot) for slot in slots):
            self._look(slots)
        return self._ledger.status(slots, self._clock.now())

    def cancel(self, slot: str) -> None:
        if slot not in self._slots:
            self._look([slot])
        if slot in self._slots and not self._ended(slot):
            # recorded only afterwards: where the call fails, the slot
            # stays open and is released again
            self._api.terminate(self._slots[slot].ids)
            self._ledger.move(slot, SlotState.RELEASED, self._clock.now(), "released")

    # further requests to a real site

    def survey(self) -> Survey:
        """Check that everything a purchase needs exists."""
        return self._api.survey(sorted(self._prices))

    def marked_jobs(self) -> list[MarkedJob]:
        """Return the instances with tags of vgrads that cost money."""
        return [
            MarkedJob(
                handle=instance.id,
                name=mark(instance.tags[TAG_SLOT]),
                slot=instance.tags[TAG_SLOT],
                run=instance.tags.get(TAG_RUN, ""),
                state=SlotState.READY if instance.ok else SlotState.GRANTED,
                age_s=instance.age_s,
            )
            for instance in self._api.instances()
            if instance.alive
        ]

    def sweep(self, handles: Sequence[str]) -> None:
        """Terminate these instances."""
        if handles:
            self._api.terminate(handles)

    # inside

    def _fail(self, slot: str, reason: str, permanent: bool = False) -> None:
        self._ledger.move(slot, SlotState.FAILED, self._clock.now(), reason, permanent)

    def _price(self, spec: SlotSpec) -> NodePrice:
        if spec.node_type not in self._prices:
            raise SiteError(f"no node type '{spec.node_type}'", site=self.site, transient=False)
        return self._prices[spec.node_type]

    def _over_limit(self, usd: float) -> str:
        limit = self.access.spend_limit_usd
        # also slots that have ended: they have cost what counts against the limit
        committed = sum(slot.usd for slot in self._slots.values())
        # a limit that is used up exactly must not fail by rounding
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

    def _look(self, slots: Sequence[str]) -> None:
        """Update the ledger from all our instances, in one call; release slots that have reached
        their duration.

        Instances of slots that were not requested here belong to other managers and are ignored.
        """
        now = self._clock.now()
        results: dict[str, list[Instance]] = {}
        for instance in self._api.instances():
            results.setdefault(instance.tags[TAG_SLOT], []).append(instance)
        self._listed = set(results)
        for slot_id in slots:
            if slot_id in results:
                self._adopt(slot_id, results[slot_id], now)
        for slot_id, slot in self._slots.items():
            if not self._ended(slot_id):
                self._note(slot_id, slot, results.get(slot_id, []), now)

    def _adopt(self, slot_id: str, instances: list[Instance], now: float) -> None:
        """Take over the instances that an earlier manager bought, if this slot is requested
        again."""
        if slot_id not in self._slots:
            tags = instances[0].tags
            usd, seconds = float(tags.get(TAG_USD, 0.0)), float(tags.get(TAG_SECONDS, math.inf))
            # the oldest instance says since when the slot is paid for
            began_s = now - max(instance.age_s for instance in instances)
            self._slots[slot_id] = _CloudSlot(
                seconds=seconds, usd=usd, ids=[i.id for i in instances], began_s=began_s
            )

    def _note(self, slot_id: str, slot: _CloudSlot, instances: list[Instance], now: float) -> None:
        """Derive the state of a slot from its instances."""
        if len(instances) < len(slot.ids):
            self._note_absence(slot_id, slot)
            return
        slot.vanished = 0  # listed again: only absences in a row say that they are gone
        slot.ids = [instance.id for instance in instances]
        dead = [instance for instance in instances if not instance.alive]
        if slot.began_s is not None and now >= slot.began_s + slot.seconds:
            self._end(slot_id, slot, SlotState.EXPIRED, "reached its end")
        elif dead:
            reason = dead[0].reason or dead[0].state
            self._end(slot_id, slot, SlotState.FAILED, f"instance {dead[0].id} is gone: {reason}")
        else:
            slot.began_s = now if slot.began_s is None else slot.began_s
            self._ledger.move(slot_id, SlotState.GRANTED, slot.began_s)
            if all(instance.ok for instance in instances):
                self._ledger.move(slot_id, SlotState.READY, now)

    def _note_absence(self, slot_id: str, slot: _CloudSlot) -> None:
        """Count a poll without instances; after several, the slot is lost. Clouds list new
        instances late, and terminated ones only for a while."""
        slot.vanished += 1
        if slot.vanished >= 5:
            self._end(slot_id, slot, SlotState.FAILED, "instances disappeared")

    def _end(self, slot_id: str, slot: _CloudSlot, state: SlotState, reason: str) -> None:
        """Terminate all remaining instances of a slot, then record its end."""
        self._api.terminate(slot.ids)
        self._ledger.move(slot_id, state, self._clock.now(), reason)


def user_data(spec: SlotSpec) -> str:
    """Return the script that an instance runs after booting; SiteError if it is too long for
    EC2."""
    exports = write_exports(spec)
    if spec.queue == SPOT:  # the agent asks for the notice that such nodes get
        exports += f"\nexport VGRADS_MARKET={SPOT}"
    if KEY in spec.environment:  # the script's process becomes the agent, which hides it
        exports += f"\nexport {KEY}={quote(spec.environment[KEY])}"
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
            "the pilot exceeds EC2's limit of 16 KiB of user data", site=spec.site, transient=False
        )
    return text
