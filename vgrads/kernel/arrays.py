"""The types of columns: arrays of one kind of number, and of records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Records = np.recarray[tuple[int, ...], np.dtype[np.void]]
"""Rows of named fields; which fields they have is documented where the dtype is defined."""
