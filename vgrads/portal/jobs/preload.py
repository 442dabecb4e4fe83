"""Everything that the processes of the service need, loaded in the one that they are forked from.

Without numba: plans of small workflows do not need it, and it would delay the first one.
"""

from __future__ import annotations

import gc

from vgrads.kernel.collector import pause_collector

with pause_collector():  # collections took a tenth of the time
    from vgrads.portal.jobs import children, learned_states, worker

    gc.freeze()  # collections in forked processes would copy the memory that they share

__all__ = ["children", "learned_states", "worker"]
