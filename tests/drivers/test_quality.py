"""Every driver says how well it is tested, in the documents as in the command."""

import re

from tests.conftest import ROOT
from vgrads.drivers.quality import GRADES, QUALITY
from vgrads.vgrid.documents import DRIVER_KINDS

PAGE = (ROOT / "docs" / "drivers.md").read_text()


def test_every_way_to_a_site_has_a_grade():
    assert QUALITY.keys() == {*DRIVER_KINDS, "local"}


def test_the_table_of_the_documents_is_that_of_the_command(vgrads, write):
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [(name, entry.grade, entry.against) for name, entry in QUALITY.items()]
    for grade, words in GRADES.items():
        assert f"{grade.capitalize()}: {words}." in PAGE
    sites = write("sites.toml", '[[site]]\nname = "here"\nkind = "dedicated"\nprocs = 1\n')
    sites.write_text(sites.read_text() + 'driver = "local"\n')
    assert str(QUALITY["local"]) in " ".join(vgrads("sites", "check", sites).out.split())
