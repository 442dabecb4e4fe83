"""What ``scripts/new.py`` writes: programs by the rules of this house, whose tests fail."""

import subprocess
import sys

import pytest

from scripts.new import KINDS, main
from tests.conftest import ROOT


@pytest.mark.more  # begins pytest for each
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_begun_follows_the_rules(kind, tmp_path, capsys):
    main([kind, "load_balance", "--root", str(tmp_path)])
    printed = capsys.readouterr().out.splitlines()
    written = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert [str(path.relative_to(tmp_path)) for path in written] == sorted(printed[:-1])
    assert printed[-1].startswith("Then: ")
    programs = [str(path) for path in written if path.suffix == ".py"]
    for rule in (("check", "--ignore", "I"), ("format", "--check")):
        ruff = [sys.executable, "-m", "ruff", *rule, "--config", ROOT / "pyproject.toml"]
        done = subprocess.run([*ruff, *programs], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    (test,) = (path for path in written if path.name.startswith("test_"))
    pytest_ = [sys.executable, "-m", "pytest", "--no-header", "-p", "no:cacheprovider", str(test)]
    assert subprocess.run(pytest_, capture_output=True, check=False, cwd=ROOT).returncode != 0
    with pytest.raises(SystemExit, match="is there already"):
        main([kind, "load_balance", "--root", str(tmp_path)])


@pytest.mark.parametrize("name", ["", "Load", "load-balance", "../x", "load__x", "9"])
def test_other_names_are_refused_and_nothing_is_written(name, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["page", name, "--root", str(tmp_path)])
    assert end.value.code == 2 and "name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
