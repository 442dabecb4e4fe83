"""``import vgrads`` loads its names when they are used."""

import subprocess
import sys

import pytest

import vgrads as package


def printed(code, folder):
    """What a program prints, in an interpreter of its own and a folder without the checkout."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_no_library_and_no_module_of_ours(tmp_path):
    code = (
        "import sys, vgrads\n"
        "libraries = ('numpy', 'pandas', 'pydantic', 'typer', 'rich', 'matplotlib', 'asyncio')\n"
        "print([n for n in sys.modules if n.startswith('vgrads.') or n in libraries])"
    )
    assert printed(code, tmp_path) == "[]"


@pytest.mark.more
@pytest.mark.parametrize("name", ["bound", "plan", "run", "offers", "Bag", "Client"])
def test_no_name_loads_the_database_the_web_or_the_terminal(name, tmp_path):
    code = (
        f"import sys, vgrads; vgrads.{name}\n"
        "others = ('sqlmodel', 'sqlalchemy', 'fastapi', 'uvicorn', 'typer', 'rich', 'matplotlib')\n"
        "print([n for n in others if n in sys.modules])"
    )
    assert printed(code, tmp_path) == "[]"


def test_every_public_name_loads_and_is_listed():
    for name in package.__all__:
        assert getattr(package, name).__doc__, name
        assert name in dir(package)
    assert set(package.__all__) == set(package._MODULE_OF)
    assert {"read_set", "plan", "run", "bound", "probability", "offers"} <= set(package.__all__)
    assert {"backtest", "Bag", "Client"} <= set(package.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'bounds'"):
        package.bounds  # noqa: B018


def test_modules_below_stay_reachable(tmp_path):
    code = "import vgrads.planner.make, vgrads; print(vgrads.planner.make.__name__, vgrads.plan)"
    assert printed(code, tmp_path).startswith("vgrads.planner.make <function plan")


def test_without_matplotlib_there_is_no_png(tmp_path):
    code = (
        "import sys\n"
        "sys.modules['matplotlib'] = None\n"
        "import vgrads\n"
        "from vgrads.api.config import embedded_data\n"
        "result = vgrads.bound(embedded_data() / 'histories/mayhem.swf.gz', method='qbets')\n"
        "offer = vgrads.offers('grid g for 1h by 4h with 50% { n = loose 1 nodes }')\n"
        "print(result._repr_png_(), offer._repr_png_(), '<svg' in result._repr_html_())"
    )
    assert printed(code, tmp_path) == "None None True"
