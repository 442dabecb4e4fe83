"""Compilation by numba, without what our functions do not need: it takes a third of the time.

numba compiles each function for callers in Python and in C, optimises it, generates machine code,
and then does the same again within every function that calls it, and once more for each literal
argument. Here a function that only compiled functions call (:func:`part`) is translated once, and
optimised and generated only within the functions that Python calls (:func:`entry`).

This relies on internals of numba: for versions with which it was not tested, numba's own decorator
compiles, which takes longer. Loaded only by what compiles: it imports numba.
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from vgrads.kernel.collector import pause_collector
from vgrads.kernel.compile_state import compilation, preparation


class _Hidden(MetaPathFinder):
    """Hides packages from the imports of one thread."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages, self._thread = packages, threading.get_ident()

    def find_spec(self, fullname: str, *_: object) -> None:
        """Find nothing. Raise ImportError for the hidden packages."""
        package = fullname.partition(".")[0]
        if threading.get_ident() == self._thread and package in self._packages:
            raise ImportError(f"{fullname} is not needed by compiled functions")


@contextmanager
def _hidden(*packages: str) -> Iterator[None]:
    finder = _Hidden(packages)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


with _hidden("scipy", "cffi", "coverage"):  # numba would load them, for what we do not use
    import numba.np.arraymath  # noqa: F401 here it looks for SciPy
    from numba import njit, version_info
    from numba.core import types
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler
    from numba.core.registry import CPUDispatcher, cpu_target

    cpu_target.target_context.refresh()

_TESTED = version_info.short in ((0, 65),)
_Untyped = Any  # numba has no annotations
_OPTIONS = {"nopython": True, "nogil": True, "no_cfunc_wrapper": True}


class _PartLibrary(JITCodeLibrary):
    """Code of one function, as it is linked into its callers: neither optimised nor generated."""

    def _optimize_functions(self, ll_module: _Untyped) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _PartCompiler(Compiler):
    """Compiler of functions that nothing calls by their address."""

    def define_pipelines(self) -> _Untyped:
        state = self.state
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        return super().define_pipelines()


class _CompiledPart(CPUDispatcher):
    """A function that only compiled functions call."""

    def get_call_template(self, args: Sequence[_Untyped], kws: Mapping[str, Any]) -> _Untyped:
        """Compile once for arguments of equal types, not for each literal anew."""
        return super().get_call_template(
            tuple(types.unliteral(item) for item in args),
            {name: types.unliteral(item) for name, item in kws.items()},
        )

    def add_overload(self, cres: _Untyped) -> None:
        """Store a result, which Python cannot call: its entry point is a mere key, by which its
        callers refer to it."""
        result = cres._replace(entry_point=object())
        cres.target_context.insert_user_function(
            result.entry_point, result.fndesc, [result.library]
        )
        self.overloads[tuple(result.signature.args)] = result


class _CompiledEntry(CPUDispatcher):
    """A function that Python calls."""

    def compile(self, sig: _Untyped) -> _Untyped:
        """Compile, or load what another process has compiled: it takes seconds, and processes that
        start together need the same functions."""
        # who waits here finds the result on disk, and loads it
        with preparation(), _lock_compilation(Path(self._cache.cache_path)):
            return super().compile(sig)

    def add_overload(self, cres: _Untyped) -> None:
        """Store a result. A new one refers to the environments of its parts, as one that is read
        from disk does."""
        if cres.referenced_envs is None:
            for environment in cres._find_referenced_environments():
                cres.codegen.set_env(environment.env_name, environment)
        super().add_overload(cres)


@contextmanager
def _lock_compilation(folder: Path) -> Iterator[None]:
    """Let one process of the machine compile the functions of a folder at a time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".vgrads-compiling", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:  # read-only, or of another user: each compiles for itself
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def entry(body: Callable[..., Any]) -> _Untyped:
    """Return the compiled form of a function that Python calls; stored on disk."""
    if not _TESTED:
        return njit(cache=True, nogil=True)(body)
    dispatcher = _CompiledEntry(py_func=body, targetoptions=_OPTIONS)
    dispatcher.enable_caching()
    compile_ = dispatcher._compiler.compile

    def announced(*arguments: _Untyped) -> _Untyped:
        with compilation(), pause_collector():
            return compile_(*arguments)

    dispatcher._compiler.compile = announced
    return dispatcher


def part(body: Callable[..., Any], in_place: bool) -> _Untyped:
    """Return the form of a function that compiled functions call; Python cannot call it.
    ``in_place``: it neither creates nor returns arrays."""
    if not _TESTED:
        return njit(cache=True, nogil=True)(body)
    # stated always: otherwise a function inherits it from its caller
    options = {**_OPTIONS, "no_cpython_wrapper": True, "_nrt": not in_place}
    return _CompiledPart(py_func=body, targetoptions=options, pipeline_class=_PartCompiler)
