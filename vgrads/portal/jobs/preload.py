"""Everything that the processes of the service need, loaded in the one that they are forked from.

Without numba: plans of small workflows do not need it, and it would delay the first one.
"""

from __future__ import annotations

import gc

gc.disable()  # nothing that an import creates is garbage: collections took a tenth of the time

from vgrads.portal.jobs import children, learned_states, worker  # noqa: E402

__all__ = ["children", "learned_states", "worker"]

gc.freeze()  # collections in forked processes would copy the memory that they share
gc.enable()
