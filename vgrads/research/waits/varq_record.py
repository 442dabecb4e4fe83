"""Share of failures to allow in choosing the instant of a reservation, by the record of promises.

The outcomes of the promises themselves are all that it needs
(docs/decisions/0047-record-of-promises.md).
"""

from __future__ import annotations


def adapt(allowed: float, probability: float, retained: bool, rate: float = 0.03) -> float:
    """Return the share of failures to allow from now on, after one more promise was kept or broken.

    Forecasts may be too confident, choosing instants by their estimated probability selects those
    that were estimated too high, and moving them discards good outcomes but keeps bad ones; the
    record of promises corrects all three in the long run (adaptive conformal inference: Gibbs and
    Candès, NeurIPS 2021, equation 2). Never more lenient than promised, never impossible to meet.
    """
    missing = 1.0 - probability
    step = rate * missing if retained else -rate * probability
    return min(max(allowed + step, missing / 10.0), missing)
