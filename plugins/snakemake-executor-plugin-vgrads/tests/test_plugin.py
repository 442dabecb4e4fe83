"""Snakemake's test suite for executor plugins. ``VGRADS_TEST_SITES``: the sites file; default: this
machine."""

import os
from pathlib import Path

from snakemake.common.tests import TestWorkflowsLocalStorageBase
from snakemake_executor_plugin_vgrads import ExecutorSettings

_HERE = '[[site]]\nname = "here"\nkind = "local"\nprocs = 4\ndriver = "local"\n'


class TestPlugin(TestWorkflowsLocalStorageBase):
    __test__ = True

    def run_workflow(self, test_name, tmp_path, deployment_method=frozenset()):
        self._sites = Path(os.environ.get("VGRADS_TEST_SITES") or tmp_path / "sites.toml")
        if not self._sites.exists():
            self._sites.write_text(_HERE)
        super().run_workflow(test_name, tmp_path, deployment_method)

    def get_executor(self):
        return "vgrads"

    def get_executor_settings(self):
        return ExecutorSettings(sites=str(self._sites))
