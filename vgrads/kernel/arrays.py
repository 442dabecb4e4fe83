"""Types of columns: arrays of one kind of number, and of records."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Records = np.recarray[tuple[int, ...], np.dtype[np.void]]
"""Rows of named fields; the fields are documented where the dtype is defined."""
Bins = NDArray[np.uint8]
Columns = tuple[NDArray[Any], ...]
"""Arrays of one length, each of its own kind of number; they are documented where they are created.
"""
