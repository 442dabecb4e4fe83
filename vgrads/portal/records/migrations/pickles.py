"""Plans and execution plans stored by vgrads 0.1: pickles, read into plain parts and rewritten as
documents.

Independent of the current code: the names of classes and fields are those of 0.1. The reader
accepts only plain data and these names, so a manipulated database cannot refer to anything else.
"""

from __future__ import annotations

import io
import pickle
import zlib
from typing import Any, ClassVar

from vgrads.portal.records.archive import Described, Writer

_PICKLED = (1).to_bytes(2, "big")
_CLASSES: dict[tuple[str, str], tuple[str, str]] = {
    ("portal.execution", "Setup"): ("setup", "options catalog began_unix_s"),
    ("portal.execution", "RunOptions"): ("run-options", "run_id folder speed seed at replan"),
    ("execmgr.book", "Book"): ("book", "plan snapshot uses order placements copies"),
    ("planner.plan", "Plan"): (
        "plan",
        (
            "set_name deadline_s needed asked_probability feasible lacking promise placements "
            "uses phases reasons relaxations policy seconds"
        ),
    ),
    ("planner.plan", "Promise"): ("promise", "probability standard_error by_workflow cautious"),
    ("planner.plan", "Placement"): (
        "placement",
        "workflow task copy slot start_s end_s procs probability",
    ),
    ("planner.plan", "SlotUse"): ("slot-use", "slot submit_s start_s end_s probability cost_usd"),
    ("planner.plan", "PhaseReport"): (
        "phase-report",
        "name seconds placed probability_before probability_after steps",
    ),
    ("planner.plan", "Relaxation"): ("relaxation", "change amount unit probability cost_usd"),
    ("planner.snapshot", "Snapshot"): ("snapshot", "wanted slots links seed scenarios"),
    ("workflows.sets", "WorkflowSet"): (
        "workflow-set",
        "name workflows deadline_s needed probability runtime_spread budget_usd directory",
    ),
    ("workflows.dag", "Workflow"): ("workflow", "name tasks file_mib"),
    ("workflows.dag", "Task"): (
        "task",
        "id runtime_s procs parents command inputs outputs memory_mib",
    ),
    ("vgrid.slot", "Slot"): (
        "slot",
        (
            "id site queue kind procs curve end_s shared submit_s up speed price_usd_per_hour "
            "billing_s nodes node_type memory_mib task_failure"
        ),
    ),
    ("vgrid.slot", "StartCurve"): ("start-curve", "times_s probabilities"),
    ("vgrid.catalog", "Catalog"): ("catalog", "sites links"),
    ("vgrid.catalog", "Site"): (
        "site",
        (
            "name kind procs nodes slot_up slot_acquire task_failure node_mtbf_s node_repair_s "
            "node_hours driver queues billing_s boot_s boot_spread access"
        ),
    ),
    ("vgrid.catalog", "Queue"): (
        "queue",
        "name history log_queue max_procs max_walltime_s max_jobs stated_probability stated_wait_s",
    ),
    ("vgrid.catalog", "NodeType"): (
        "node-type",
        (
            "name cores memory_mib speed price_usd_per_hour spot_price_usd_per_hour "
            "spot_interruptions_per_hour"
        ),
    ),
    ("vgrid.catalog", "Link"): ("link", "bandwidth_mib_s latency_s"),
    ("drivers.api", "Access"): (
        "access",
        (
            "host ssh_options account reservation folder shared_home shared_files timeout_s "
            "poll_s options parallel_environment python contact endpoint region image key_name "
            "security_groups profile spend_limit_usd price_date"
        ),
    ),
}
_PLAIN = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("pathlib", "PosixPath"),
    ("datetime", "datetime"),
    ("datetime", "timezone"),
    ("datetime", "timedelta"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
}
_MOVED = {"pathlib._local": "pathlib"}
"""Module of paths in Python 3.13."""


class _Part:
    """A value of 0.1: the permanent name of its kind, and its fields."""

    kind: ClassVar[str]
    names: ClassVar[tuple[str, ...]]

    def __setstate__(self, state: Any) -> None:
        """Restore the fields: values with slots were pickled as a list, others as their namespace
        including caches."""
        values = dict(zip(self.names, state, strict=True)) if isinstance(state, list) else state
        self.fields = {name: values[name] for name in self.names if name in values}


_PARTS = {
    place: type(place[1], (_Part,), {"kind": kind, "names": tuple(names.split())})
    for place, (kind, names) in _CLASSES.items()
}


class _Unpickler(pickle.Unpickler):
    """Builds parts and plain data, nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        module = _MOVED.get(module, module)
        if (module, name) in _PARTS:
            return _PARTS[module, name]
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place in an archive")


def as_document(body: bytes) -> bytes | None:
    """Convert a pickle of 0.1 to a document; None for invalid or unreadable data, which stays
    unchanged."""
    if body[:2] != _PICKLED:
        return None
    try:
        value = _Unpickler(io.BytesIO(zlib.decompress(body[2:]))).load()
    except (pickle.UnpicklingError, zlib.error, EOFError, AttributeError, ImportError, ValueError):
        return None
    return Writer(_described).document(value)


def _described(part: _Part) -> Described:
    return Described(part.kind, tuple(part.fields), tuple(part.fields.values()))
