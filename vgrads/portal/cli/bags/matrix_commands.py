"""What ``vgrads allpairs``, ``wavefront`` and ``matrix`` do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vgrads.kernel.errors import InputError
from vgrads.operations.bags.matrix_requests import (
    AllPairsRequest,
    MatrixOptions,
    ShowMatrixRequest,
    WavefrontRequest,
)
from vgrads.portal.cli.requests import CommandOutput

if TYPE_CHECKING:
    from vgrads.api.bags.matrices import Function, MatrixProblem


def compute_matrix(request: AllPairsRequest | WavefrontRequest, output: CommandOutput) -> int:
    """Compute what is missing of a matrix; return the exit code."""
    if isinstance(request, AllPairsRequest):
        return _compute(_read_pairs(request), "allpairs", request, output)
    return _compute(_make_table(request), "wavefront", request, output)


def _read_pairs(request: AllPairsRequest) -> MatrixProblem:
    from vgrads.api.bags.matrices import MatrixProblem, read_items

    left, right = read_items(request.a), read_items(request.b)
    if request.symmetric and [path for _, path in left] != [path for _, path in right]:
        raise InputError("A and B are not the same items", where="symmetric")
    return MatrixProblem(
        kind="allpairs",
        rows=len(left),
        cols=len(right),
        half=request.symmetric,
        a=left,
        b=right,
        procs=request.procs,
        function=_find_function(request),
        more=request.inputs,
    )


def _make_table(request: WavefrontRequest) -> MatrixProblem:
    from vgrads.api.bags.matrices import MatrixProblem, read_border

    x, y = request.x, request.y
    rows, cols, border = read_border(request.edges, x, y, request.width, request.height)
    return MatrixProblem(
        kind="wavefront",
        rows=rows,
        cols=cols,
        border=border,
        x=x,
        y=y,
        procs=request.procs,
        function=_find_function(request),
        more=request.inputs,
    )


def _compute(
    problem: MatrixProblem, kind: str, request: MatrixOptions, output: CommandOutput
) -> int:
    from vgrads.api.bags.matrix_goals import make_matrix_goal
    from vgrads.portal.cli.bags.matrix_run import HowToCompute, compute
    from vgrads.portal.cli.bags.run import HowToWork

    how = HowToCompute(
        matrix=request.matrix or Path(f"{kind}.matrix"),
        out=request.out,
        block=request.block,
        retries=request.retries,
        goal=make_matrix_goal(request.deadline, request.probability, request.budget_usd),
        work=HowToWork(sites=request.sites, as_json=output.as_json),
    )
    return compute(problem, how)


def show_matrix(request: ShowMatrixRequest, output: CommandOutput) -> int:
    """``vgrads matrix``."""
    from vgrads.portal.cli.bags.matrix_run import show

    show(request.file, output.as_json)
    return 0


def _find_function(request: MatrixOptions) -> Function:
    from vgrads.api.bags import matrices

    forms = (request.function, request.library, request.python)
    if sum(bool(values) for values in forms) > 1:
        raise InputError(
            "is given twice",
            where="FUNCTION",
            fix="give one of an executable, --library and --python",
        )
    if request.library is not None:
        return matrices.library(request.library, request.symbol)
    if request.python is not None:
        if request.procs > 1:
            raise InputError(
                "a Python function runs on one processor of a block",
                where="procs",
                fix="remove the option: blocks run in parallel",
            )
        return matrices.python(request.python)
    return matrices.program(list(request.function))
