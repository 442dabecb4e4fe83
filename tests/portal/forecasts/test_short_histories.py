"""Warnings where promises rest on a site's own estimates: one line for a site."""

import pytest

from vgrads.api.queues.start_estimate_prior import describe_priors, start_estimate_priors
from vgrads.vgrid.catalog import load_catalog

SITE = '[[site]]\nname = "cluster"\nkind = "batch"\nprocs = 8\ndriver = "{driver}"\n'
QUEUE = '[[site.queue]]\nname = "q{n}"\nmax_walltime = "1h"\n'
HISTORY = 'history = "log.txt"\n'
HEAD = "JobID|User|Partition|Submit|Start|End|State|NCPUS|Timelimit\n"


@pytest.fixture
def catalog(write):
    def make(queues, history=HISTORY, jobs=6, driver="slurm"):
        lines = [
            f"{n}|u|q{n % 2}|2024-01-01T{n // 60:02}:{n % 60:02}:00|2024-01-02T01:00:00|"
            "2024-01-02T02:00:00|COMPLETED|4|02:00:00\n"
            for n in range(jobs)
        ]
        write("log.txt", HEAD + "".join(lines))
        parts = [QUEUE.format(n=n) + history for n in range(queues)]
        return load_catalog(write("sites.toml", SITE.format(driver=driver) + "".join(parts)))

    return make


def notes(catalog, jobs):
    keys = [(site.name, queue.name) for site in catalog.sites for queue in site.queues]
    priors = start_estimate_priors(catalog, dict.fromkeys(keys, jobs))
    for prior in priors.values():
        prior._announced[1, 60.0] = 0.0
    return describe_priors(priors)


def test_a_site_of_eleven_short_queues_has_a_single_line(catalog):
    (note,) = notes(catalog(11), 6)
    assert note.startswith(
        "cluster: at most 6 jobs of a queue are known, about 60 are needed: Slurm's own estimates"
    )
    assert "sites collect" not in note  # its history is there


def test_a_single_queue_is_named_and_without_any_history_collecting_is_recommended(catalog):
    (note,) = notes(catalog(1, history=""), 0)
    assert note.startswith("cluster/q0: 0 jobs are known, about 60 are needed: Slurm's own")
    assert "'vgrads sites collect cluster' learns from its accounting" in note
    (other,) = notes(catalog(1, driver="pbs"), 1)
    assert other.startswith("cluster/q0: 1 job is known, about 60 are needed: the site's own")
