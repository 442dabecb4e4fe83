"""The version check: the plugin uses modules of vgrads, so both must have the same version.

Snakemake imports every plugin at every start. So a wrong version must not be an error before the
user requests ``--executor vgrads``.
"""

from importlib.metadata import PackageNotFoundError, version

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.real import RealExecutor


def mismatch() -> str:
    """Describe the mismatch of the installed version of vgrads; empty where it is the plugin's."""
    own = version("snakemake-executor-plugin-vgrads")
    try:
        text = version("vgrads")
    except PackageNotFoundError:
        text = "not installed"
    if text == own:
        return ""
    return (
        f"the Snakemake plugin of vgrads has version {own}, vgrads itself: {text}. Install both "
        f"in the same version: pip install vgrads=={own} "
        f"snakemake-executor-plugin-vgrads=={own}"
    )


class Executor(RealExecutor):
    """A placeholder where vgrads has another version: it only reports the mismatch."""

    def __new__(cls, *_: object, **__: object) -> "Executor":
        raise WorkflowError(mismatch())
