"""Requests to compute matrices of generated tasks: All-Pairs and Wavefront. Light: the commands and
the kinds of a bag's document are made of these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vgrads.operations.bags.requests import GoalOptions
from vgrads.operations.fields import About, OnCommandLine, Request
from vgrads.operations.shared import SitesOption


@dataclass(frozen=True, kw_only=True)
class MatrixOptions(GoalOptions, SitesOption):
    """What both have: the function F, its blocks, and where the results are."""

    function: Annotated[
        tuple[str, ...],
        About(
            "An executable with its arguments. It is called with the files of a cell appended to "
            "the arguments, and prints the value. Put -- before it if its arguments begin with -."
        ),
        OnCommandLine(argument=True, metavar="FUNCTION…"),
    ] = ()
    library: Annotated[
        Path | None,
        About("Use F of a shared library instead (signature: docs/matrix.md)."),
        OnCommandLine(metavar="F.so"),
    ] = None
    symbol: Annotated[str, About("Name of the function in --library.")] = "compare"
    python: Annotated[
        str | None,
        About(
            "Use a Python function of bytes instead; or MODULE:NAME if the nodes have the module."
        ),
        OnCommandLine(metavar="FILE.py:NAME"),
    ] = None
    matrix: Annotated[
        Path | None,
        About(
            "File for the results; the same command continues from it. Default: allpairs.matrix or "
            "wavefront.matrix."
        ),
        OnCommandLine(metavar="FILE"),
    ] = None
    out: Annotated[
        Path | None,
        About("Also write the results as lines of text."),
        OnCommandLine(flags="--out -o", metavar="FILE"),
    ] = None
    block: Annotated[
        int | None,
        About(
            "Cells per side of a block. Default: chosen by the run time of F.",
            minimum=1,
            maximum=5000,
        ),
    ] = None
    procs: Annotated[
        int,
        About("Processors of a block: number of cells that it computes at once.", minimum=1),
    ] = 1
    inputs: Annotated[
        tuple[Path, ...],
        About("Another file that F reads, by its name. Repeatable."),
        OnCommandLine(flags="--input", metavar="FILE"),
    ] = ()
    retries: Annotated[
        int, About("Number of retries of a failed block.", minimum=0, maximum=100)
    ] = 1


@dataclass(frozen=True, kw_only=True)
class AllPairsRequest(MatrixOptions):
    """Compute F(A[i], B[j]) for all pairs of items, in blocks, on this machine or on the sites of
    --sites. The same command resumes an interrupted run."""

    a: Annotated[
        Path,
        About("A folder of items, or a list of files."),
        OnCommandLine(argument=True, metavar="A"),
    ]
    b: Annotated[
        Path,
        About("The same for the other side."),
        OnCommandLine(argument=True, metavar="B"),
    ]
    symmetric: Annotated[bool, About("Compute one half: F(x, y) = F(y, x), and A is B.")] = False


@dataclass(frozen=True, kw_only=True)
class WavefrontRequest(MatrixOptions):
    """Compute R[x,y] = F(R[x−1,y], R[x,y−1], R[x−1,y−1]) from its edges, in blocks, on this machine
    or on the sites of --sites. The same command resumes an interrupted run."""

    edges: Annotated[
        Path,
        About(
            "A folder of files R.x.y, x or y before the first cell (R.-1.0), or a file of lines "
            "'x y value'."
        ),
        OnCommandLine(argument=True, metavar="EDGES"),
    ]
    x: Annotated[int, About("Value of x of the first cell."), OnCommandLine(flags="-X")] = 0
    y: Annotated[int, About("Value of y of the first cell."), OnCommandLine(flags="-Y")] = 0
    width: Annotated[
        int | None,
        About("Cells along x. Default: the length of the edge.", minimum=1),
        OnCommandLine(flags="-W"),
    ] = None
    height: Annotated[
        int | None,
        About("Cells along y. Default: the length of the edge.", minimum=1),
        OnCommandLine(flags="-H"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ShowMatrixRequest(Request):
    """Print a matrix file: a line for each computed cell; with --json its status."""

    file: Annotated[Path, About("A matrix file."), OnCommandLine(argument=True, metavar="FILE")]
