"""Which vgrads this plugin needs: it uses modules of vgrads, so both have the same version.

Snakemake imports every plugin at every start. So a wrong version must not be an error before
somebody asks for ``--executor vgrads``.
"""

from importlib.metadata import PackageNotFoundError, version

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.real import RealExecutor


def mismatch() -> str:
    """What is wrong with the version of vgrads that is installed; empty where it is this
    plugin's."""
    own = version("snakemake-executor-plugin-vgrads")
    try:
        found = version("vgrads")
    except PackageNotFoundError:
        found = "not installed"
    if found == own:
        return ""
    return (
        f"the Snakemake plugin of vgrads is of version {own}, vgrads itself: {found}. Install both "
        f"in one version: pip install vgrads=={own} snakemake-executor-plugin-vgrads=={own}"
    )


class Executor(RealExecutor):
    """Stands in where vgrads is of another version: it only says so."""

    def __new__(cls, *_: object, **__: object) -> "Executor":
        raise WorkflowError(mismatch())
