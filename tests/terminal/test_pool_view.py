"""What a running pool shows: an idle one says what it waits for."""

from vgrads.kernel.text_table import table_lines
from vgrads.portal.cli.pools.text import pool_line, pool_table

IDLE = {"host_count": 0, "coming": 0, "pools": {"decided": {}, "problem": ""}, "bags": []}
BUSY = {
    "host_count": 2,
    "coming": 1,
    "pools": {"decided": {"sweep": 3}, "problem": ""},
    "bags": [{"name": "sweep", "running": 2, "waiting": 8}],
}


def test_an_idle_pool_says_what_it_waits_for_and_how_to_end_it():
    for text in (pool_line(IDLE), " ".join(" ".join(table_lines(pool_table(IDLE), 80)).split())):
        assert text.startswith("0 hosts; no manager needs workers")
        assert "'hosts: {guests: true}'" in text
        assert "'vgrads bags run BAG.yaml'" in text
        assert "Ctrl-C ends the pool" in text
    assert max(map(len, table_lines(pool_table(IDLE), 80))) <= 80


def test_a_pool_with_work_shows_its_managers_and_no_hint():
    lines = table_lines(pool_table(BUSY), 80)
    assert lines[2].split() == ["sweep", "3", "2", "8"]
    assert lines[3] == "2 hosts, 1 requested; decided: sweep 3"
    assert "no manager" not in pool_line(BUSY)
