"""Commands for matrices of generated tasks: ``vgrads allpairs``, ``vgrads wavefront``, ``vgrads
matrix``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vgrads.kernel.errors import InputError
from vgrads.portal.cli.options import (
    AsJson,
    GoalBudget,
    GoalDeadline,
    GoalProbability,
    Sites,
    app,
)

if TYPE_CHECKING:
    from vgrads.api.bags.matrices import Function

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FUNCTION…",
        show_default=False,
        help=(
            "An executable with its arguments. It is called with the files of a cell appended to "
            "the arguments, and prints the value. Put -- before it if its arguments begin with -."
        ),
    ),
]
Library = Annotated[
    Path | None,
    typer.Option(
        "--library",
        metavar="F.so",
        help="Use F of a shared library instead (signature: docs/matrix.md).",
    ),
]
Symbol = Annotated[str, typer.Option("--symbol", help="Name of the function in --library.")]
Python = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="FILE.py:NAME",
        help="Use a Python function of bytes instead; or MODULE:NAME if the nodes have the module.",
    ),
]
Matrix = Annotated[
    Path | None,
    typer.Option(
        "--matrix",
        metavar="FILE",
        help=(
            "File for the results; the same command continues from it. Default: "
            "allpairs.matrix or wavefront.matrix."
        ),
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Also write the results as lines of text."),
]
Block = Annotated[
    int | None,
    typer.Option(
        "--block",
        min=1,
        max=5000,
        help="Cells per side of a block. Default: chosen by the run time of F.",
        show_default=False,
    ),
]
Procs = Annotated[
    int,
    typer.Option(
        "--procs", min=1, help="Processors of a block: number of cells that it computes at once."
    ),
]
More = Annotated[
    list[Path] | None,
    typer.Option(
        "--input",
        metavar="FILE",
        help="Another file that F reads, by its name. Repeatable.",
    ),
]
Retries = Annotated[
    int,
    typer.Option("--retries", min=0, max=100, help="Number of retries of a failed block."),
]


@app.command(
    "allpairs",
    epilog=(
        "Examples: `vgrads allpairs images/ images/ ./compare --symmetric -o results.txt` · "
        "`vgrads allpairs a.list b.list --python compare.py:distance`"
    ),
)
def allpairs(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="A", help="A folder of items, or a list of files.", show_default=False
        ),
    ],
    b: Annotated[
        Path, typer.Argument(metavar="B", help="The same for the other side.", show_default=False)
    ],
    function: Words = None,
    library: Library = None,
    symbol: Symbol = "compare",
    python: Python = None,
    symmetric: Annotated[
        bool, typer.Option("--symmetric", help="Compute one half: F(x, y) = F(y, x), and A is B.")
    ] = False,
    matrix: Matrix = None,
    out: Out = None,
    block: Block = None,
    procs: Procs = 1,
    more: More = None,
    retries: Retries = 1,
    deadline: GoalDeadline = None,
    probability: GoalProbability = None,
    budget: GoalBudget = None,
    sites: Sites = None,
    as_json: AsJson = False,
) -> None:
    """Compute F(A[i], B[j]) for all pairs of items, in blocks, on this machine or on the sites of
    --sites. The same command resumes an interrupted run."""
    from vgrads.api.bags.matrices import MatrixProblem, items_of
    from vgrads.api.bags.matrix_goals import matrix_goal
    from vgrads.portal.cli.bags.matrix_run import HowToCompute, compute
    from vgrads.portal.cli.bags.run import HowToWork

    left, right = items_of(a), items_of(b)
    if symmetric and [path for _, path in left] != [path for _, path in right]:
        raise InputError("A and B are not the same items", where="--symmetric")
    problem = MatrixProblem(
        kind="allpairs",
        rows=len(left),
        cols=len(right),
        half=symmetric,
        a=left,
        b=right,
        procs=procs,
        function=_function(function, library, symbol, python, procs),
        more=more or (),
    )
    how = HowToCompute(
        matrix=matrix or Path("allpairs.matrix"),
        out=out,
        block=block,
        retries=retries,
        goal=matrix_goal(deadline, probability, budget),
        work=HowToWork(sites=sites, as_json=as_json),
    )
    raise typer.Exit(compute(problem, how))


@app.command(
    "wavefront",
    epilog=(
        "Examples: `vgrads wavefront edges/ ./cell -o results.txt` · `vgrads wavefront "
        "edges.txt -X 15 -Y 20 -W 5 -H 5 ./cell` · `vgrads wavefront edges/ ./cell "
        "--sites sites.toml --deadline 4h -p 0.95 --budget 20`"
    ),
)
def wavefront(
    edges: Annotated[
        Path,
        typer.Argument(
            metavar="EDGES",
            help=(
                "A folder of files R.x.y, x or y before the first cell (R.-1.0), or a file of "
                "lines 'x y value'."
            ),
            show_default=False,
        ),
    ],
    function: Words = None,
    library: Library = None,
    symbol: Symbol = "compare",
    python: Python = None,
    x: Annotated[int, typer.Option("-X", help="x of the first cell.")] = 0,
    y: Annotated[int, typer.Option("-Y", help="y of the first cell.")] = 0,
    width: Annotated[
        int | None,
        typer.Option(
            "-W", min=1, help="Cells along x. Default: the length of the edge.", show_default=False
        ),
    ] = None,
    height: Annotated[
        int | None,
        typer.Option(
            "-H", min=1, help="Cells along y. Default: the length of the edge.", show_default=False
        ),
    ] = None,
    matrix: Matrix = None,
    out: Out = None,
    block: Block = None,
    procs: Procs = 1,
    more: More = None,
    retries: Retries = 1,
    deadline: GoalDeadline = None,
    probability: GoalProbability = None,
    budget: GoalBudget = None,
    sites: Sites = None,
    as_json: AsJson = False,
) -> None:
    """Compute R[x,y] = F(R[x−1,y], R[x,y−1], R[x−1,y−1]) from its edges, in blocks, on this machine
    or on the sites of --sites. The same command resumes an interrupted run."""
    from vgrads.api.bags.matrices import MatrixProblem, border_of
    from vgrads.api.bags.matrix_goals import matrix_goal
    from vgrads.portal.cli.bags.matrix_run import HowToCompute, compute
    from vgrads.portal.cli.bags.run import HowToWork

    rows, cols, border = border_of(edges, x, y, width, height)
    problem = MatrixProblem(
        kind="wavefront",
        rows=rows,
        cols=cols,
        border=border,
        x=x,
        y=y,
        procs=procs,
        function=_function(function, library, symbol, python, procs),
        more=more or (),
    )
    how = HowToCompute(
        matrix=matrix or Path("wavefront.matrix"),
        out=out,
        block=block,
        retries=retries,
        goal=matrix_goal(deadline, probability, budget),
        work=HowToWork(sites=sites, as_json=as_json),
    )
    raise typer.Exit(compute(problem, how))


@app.command("matrix", epilog="Example: `vgrads matrix allpairs.matrix > results.txt`")
def matrix_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A matrix file.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Print a matrix file: a line for each computed cell; with --json its status."""
    from vgrads.portal.cli.bags.matrix_run import show

    show(file, as_json)


def _function(
    words: list[str] | None, library: Path | None, symbol: str, python: str | None, procs: int
) -> Function:
    from vgrads.api.bags import matrices

    if sum(bool(values) for values in (words, library, python)) > 1:
        raise InputError(
            "is given twice",
            where="FUNCTION",
            fix="give one of an executable, --library and --python",
        )
    if library is not None:
        return matrices.library(library, symbol)
    if python is not None:
        if procs > 1:
            raise InputError(
                "a Python function runs on one processor of a block",
                where="--procs",
                fix="remove the option: blocks run in parallel",
            )
        return matrices.python(python)
    return matrices.program(words or [])
