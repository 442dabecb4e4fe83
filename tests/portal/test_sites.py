"""Sites of files and of the database: commands, histories, what runs teach."""

import json
import re
import urllib.request

import pytest

from tests.conftest import DATA
from tests.portal.serving import serving
from tests.waiting import until

SITE = """
[[site]]
name = "here"
kind = "batch"
procs = 64
[[site.queue]]
name = "default"
history = "{history}"
[[site.queue]]
name = "unknown"
"""


def test_listing_and_checking_the_embedded_sites(vgrads):
    rows = {row["name"]: row for row in vgrads("sites", "list", "--json").json["sites"]}
    assert rows["ec2"]["nodes"][0]["price_usd_per_hour"] == 0.68
    assert rows["kittyhawk"]["queues"][0]["history"]["jobs"] > 1000
    assert rows["uheuca"]["binding"]["p5_s"] < 900 < rows["uheuca"]["binding"]["p95_s"]
    checked = vgrads("sites", "check", "--json")
    assert checked.code == 0
    assert all(row["usable"] and row["can"] for row in checked.json["sites"])
    assert "kittyhawk" in vgrads("sites", "list").out
    assert "yes" in vgrads("sites", "check").out


def test_a_site_that_cannot_be_used_is_exit_4(vgrads, write):
    path = write(
        "sites.toml", '[[site]]\nname = "far"\nkind = "dedicated"\nprocs = 4\ndriver = "slurm"\n'
    )
    answer = vgrads("sites", "check", path, "--json")
    assert answer.code == 4
    assert "site far" in answer.json["sites"][0]["problem"]
    bad = write("b.toml", SITE.format(history="missing.swf"))
    answer = vgrads("sites", "check", bad, "--json")
    assert answer.code == 4
    assert "missing.swf" in answer.json["sites"][0]["problem"]


def test_sites_of_the_database_serve_every_question(vgrads, write):
    history = DATA / "histories" / "mayhem.swf.gz"
    path = write("sites.toml", SITE.format(history=history))
    assert vgrads("sites", "add", path).code == 0
    assert [row["name"] for row in vgrads("sites", "list", "--json").json["sites"]] == ["here"]
    for command, more in (
        ("bound", ()),
        ("probability", ("--within", "1h")),
        ("trajectory", ("--start-by", "2h")),
    ):
        options = ("--procs", 4, "--json", *more)
        assert (
            vgrads(command, "here/default", *options).json
            == vgrads(command, history, *options).json
        )
    answer = vgrads("bound", "here/unknown", "--json")
    assert (answer.code, "no history" in answer.err) == (2, True)
    answer = vgrads("bound", "here")
    assert (answer.code, "here/default, here/unknown" in answer.err) == (2, True)
    assert vgrads("bound", "nowhere").code == 2
    small = (
        "name: s\ndeadline: 4h\nprobability: 0.5\nworkflows:\n- {name: w, tasks: [{id: t, "
        "runtime_s: 60}]}\n"
    )
    assert vgrads("plan", write("s.yaml", small), "--json").json["slots"][0]["site"] == "here"
    assert vgrads("sites", "remove", "here").code == 0
    assert vgrads("sites", "remove", "here").code == 2
    assert len(vgrads("sites", "list", "--json").json["sites"]) == 7


def test_nothing_of_a_faulty_file_is_stored(vgrads, write):
    bad = write(
        "sites.toml",
        '[[site]]\nname = "ok"\nkind = "cloud"\nprocs = 4\n' + SITE.format(history="missing.swf"),
    )
    answer = vgrads("sites", "add", bad)
    assert answer.code == 2
    assert "site 'here', queue 'default'" in answer.err
    assert len(vgrads("sites", "list", "--json").json["sites"]) == 7


@pytest.mark.more
def test_runs_teach_how_long_binding_takes(vgrads):
    def observed():
        rows = vgrads("sites", "list", DATA / "sites.toml", "--json").json["sites"]
        return {row["name"]: row["binding"] for row in rows if row["binding"]["observed"]}

    assert observed() == {}
    plain = vgrads("plan", DATA / "lead-storm.yaml", "--json", "--as-stated").json
    vgrads("run", DATA / "lead-storm.yaml", "--json")
    learned = observed()
    assert {slot["site"] for slot in plain["slots"]} >= set(learned)
    assert sum(binding["observed"] for binding in learned.values()) >= 2
    drop = {"seconds", "phases"}
    again = vgrads("plan", DATA / "lead-storm.yaml", "--json", "--as-stated").json
    assert {k: v for k, v in again.items() if k not in drop} == {
        k: v for k, v in plain.items() if k not in drop
    }
    after = vgrads("plan", DATA / "lead-storm.yaml")
    promised = f"{plain['promise']['probability']:.3f}"
    assert f"with probability {promised}" not in after.out
    text = " ".join(after.err.split())
    assert f"since the last plan of this set, which promised {promised}, " in text
    assert re.search(r", \d+ slot starts were learned", text)


def names_at(service):
    with urllib.request.urlopen(f"{service.url}/v1/sites", timeout=60) as answer:
        return [site["name"] for site in json.load(answer)]


@pytest.mark.more
def test_a_running_service_uses_sites_as_soon_as_they_are_stored(vgrads, write, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    with serving(home) as service:
        names = names_at(service)
        assert "kittyhawk" in names
        file = write("s.toml", '[[site]]\nname = "mine"\nkind = "local"\nprocs = 2\n')
        stored = vgrads("sites", "add", file)
        assert "stored in the database: mine" in stored.out
        assert "no longer offered" in stored.out and "kittyhawk" in stored.out
        until(lambda: names_at(service) == ["mine"], "the site")
        log = service.log.read_text()
        assert "Now: mine; no longer: " in log and "kittyhawk" in log
        more = write("t.toml", '[[site]]\nname = "other"\nkind = "local"\nprocs = 2\n')
        assert "no longer offered" not in vgrads("sites", "add", more).out
        until(lambda: len(names_at(service)) == 2, "the second site")
