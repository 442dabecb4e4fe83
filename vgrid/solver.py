"""The solver of integer programmes written with PuLP: HiGHS, in the copy that SciPy contains.

https://highs.dev; Huangfu and Hall 2018, doi:10.1007/s12532-017-0130-5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pulp

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

_STATUS = {
    0: (pulp.LpStatusOptimal, pulp.LpSolutionOptimal),
    1: (pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound),  # out of time
    2: (pulp.LpStatusInfeasible, pulp.LpSolutionInfeasible),
    3: (pulp.LpStatusUnbounded, pulp.LpSolutionUnbounded),
    4: (pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound),
}
"""The states of :func:`scipy.optimize.milp` in PuLP's terms."""


class Highs(pulp.LpSolver):  # type: ignore[misc]
    """Solver for :meth:`pulp.LpProblem.solve`; ``gap``: relative gap at which it may stop."""

    name = "HiGHS"

    def __init__(self, seconds: float, gap: float = 0.0) -> None:
        super().__init__(msg=False, timeLimit=seconds)
        self._gap = gap
        self.gap: float | None = None
        """Relative gap of the last solution to the best bound; None if unknown."""

    def available(self) -> bool:
        """Return True: SciPy is always installed."""
        return True

    def actualSolve(self, lp: pulp.LpProblem) -> int:
        """Solve a programme, and store values and status in it."""
        from scipy.optimize import Bounds, milp  # noqa: PLC0415 loads for a third of a second

        variables = list(lp.variables())
        low = [-np.inf if v.lowBound is None else v.lowBound for v in variables]
        high = [np.inf if v.upBound is None else v.upBound for v in variables]
        # milp only minimises
        sign = -1.0 if lp.sense == pulp.LpMaximize else 1.0
        result = milp(
            sign * np.array([float(lp.objective.get(v, 0.0)) for v in variables]),
            integrality=np.array([v.cat == pulp.LpInteger for v in variables], int),
            bounds=Bounds(low, high),
            constraints=_make_rows(lp, {v: n for n, v in enumerate(variables)}),
            options={"time_limit": self.timeLimit, "mip_rel_gap": self._gap},
        )
        self.gap = getattr(result, "mip_gap", None)
        status, solution = _STATUS[result.status]
        if result.x is not None:
            values = zip(variables, result.x.tolist(), strict=True)
            lp.assignVarsVals({v.name: value for v, value in values})
            # out of time, but with a solution: PuLP calls this optimal, and its solution feasible
            if result.status == 1:
                status, solution = pulp.LpStatusOptimal, pulp.LpSolutionIntegerFeasible
        lp.assignStatus(status, solution)
        return int(status)


def _make_rows(lp: pulp.LpProblem, places: Mapping[object, int]) -> LinearConstraint:
    """Return the constraints as a sparse matrix between two bounds."""
    from scipy.optimize import LinearConstraint  # noqa: PLC0415
    from scipy.sparse import csr_matrix  # noqa: PLC0415

    constraints = lp.constraints()
    rows, columns, values = list[int](), list[int](), list[float]()
    for n, constraint in enumerate(constraints):
        for variable, value in constraint.items():
            rows.append(n)
            columns.append(places[variable])
            values.append(float(value))
    sides = np.array([-float(c.constant) for c in constraints])
    senses = np.array([c.sense for c in constraints])
    matrix = csr_matrix((values, (rows, columns)), shape=(len(constraints), len(places)))
    return LinearConstraint(
        matrix,
        np.where(senses == pulp.LpConstraintLE, -np.inf, sides),
        np.where(senses == pulp.LpConstraintGE, np.inf, sides),
    )
