"""``vgrads.register_joblib``: joblib can use executors."""

from __future__ import annotations

from vgrads.kernel.errors import InputError


def register_joblib(make_default: bool = False) -> None:
    """Register the backend ``"vgrads"`` with joblib, for ``joblib.parallel_config``.

    Its options are those of :class:`vgrads.Executor`, or ``executor``: one that exists.
    ``make_default``: use it wherever none is named. Raises InputError where joblib is not
    installed::

        vgrads.register_joblib()
        with joblib.parallel_config(backend="vgrads", n_jobs=4):
            GridSearchCV(model, parameters).fit(x, y)
    """
    try:
        from vgrads.executor.joblib_backend import register  # noqa: PLC0415 joblib may be missing
    except ImportError as error:
        raise InputError(
            "the backend of joblib needs joblib, which cannot be loaded: " + str(error),
            where="register_joblib",
            fix="pip install joblib",
        ) from error
    register(make_default)
