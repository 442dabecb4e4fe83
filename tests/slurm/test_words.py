"""Time limits, memory, instants, arrays, lists of hosts, names of files: read and printed."""

import doctest
import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.slurm import arrays, dependencies, environment, limits, patterns, times
from vgrads.slurm.arrays import format_indices, parse_array, parse_indices
from vgrads.slurm.errors import SlurmError
from vgrads.slurm.limits import (
    format_cpu_time,
    format_long,
    format_memory,
    format_memory_as,
    format_short,
    parse_limit,
    parse_memory,
)
from vgrads.slurm.patterns import PatternValues, default_output, expand_pattern, output_path
from vgrads.slurm.text import hostlist, options, padded
from vgrads.slurm.text.hostlist import expand_hostlist, fold_hostlist
from vgrads.slurm.times import format_instant, instant_format, parse_instant

MODULES = (arrays, dependencies, environment, hostlist, limits, options, padded, patterns, times)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples_of_the_documentation(module):
    result = doctest.testmod(module)
    assert result.attempted and not result.failed


@given(st.integers(1, 10_000_000))
def test_a_time_limit_that_is_printed_is_read_again(minutes):
    seconds = minutes * 60.0
    assert parse_limit(format_long(seconds)) == seconds
    if seconds >= 3600:  # below an hour, M:SS, which is read as minutes and seconds too
        assert parse_limit(format_short(seconds)) == seconds
    assert parse_limit(str(minutes)) == seconds


@given(st.integers(0, 100_000_000))
def test_limits_are_rounded_up_to_whole_minutes(seconds):
    days, rest = divmod(seconds, 86400)
    limit_s = parse_limit(f"{days}-{rest // 3600}:{rest % 3600 // 60}:{rest % 60}")
    if seconds == 0:
        assert limit_s is None
    else:
        assert limit_s % 60 == 0 and seconds <= limit_s < seconds + 60


@pytest.mark.parametrize(
    "text", ["", "abc", "1.5", ":30", "1:", "1:2:3:4", " 5", "+5", "1-2-3", "-5", "1d"]
)
def test_what_is_no_time_limit(text):
    with pytest.raises(ValueError):
        parse_limit(text)


@pytest.mark.parametrize("text", ["UNLIMITED", "infinite", "0", "-1", "0:00"])
def test_no_limit(text):
    assert parse_limit(text) is None


@given(st.integers(1, 10**7), st.sampled_from("MGT"))
def test_memory_that_is_printed_is_read_again(number, unit):
    mib = parse_memory(f"{number}{unit}")
    assert parse_memory(format_memory(mib)) == mib
    assert parse_memory(f"{number}{unit.lower()}b") == mib


def test_memory():
    assert [parse_memory(text) for text in ("1K", "1025K", "3", "0")] == [1, 2, 3, 0]
    assert format_memory_as(1536, "G") == "1.50G"
    for text in ("", "1.5G", "-5", "1GiB", "M"):
        with pytest.raises(ValueError):
            parse_memory(text)


def test_processor_times():
    assert [format_cpu_time(s) for s in (0.5, 59.999, 3599.9)] == [
        "00:00.500",
        "00:59.999",
        "59:59.900",
    ]


@given(st.floats(1e9, 4e9))
def test_an_instant_that_is_printed_is_read_again(unix_s):
    text = format_instant(unix_s)
    assert parse_instant(text, 0.0) == datetime.fromisoformat(text).timestamp()
    assert parse_instant(f"uts{int(unix_s)}", 0.0) == int(unix_s)


@given(st.floats(1e9, 4e9), st.integers(0, 23), st.integers(0, 59))
def test_a_time_of_day_is_the_next_or_that_of_today(now_s, hour, minute):
    text = f"{hour:02}:{minute:02}"
    later, today = parse_instant(text, now_s), parse_instant(text, now_s, past=True)
    day_s = 90_000  # a day, and the hour of a change of time
    assert int(now_s) <= later <= now_s + day_s
    assert abs(today - now_s) <= day_s
    assert time.localtime(later)[3:5] == time.localtime(today)[3:5] == (hour, minute)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "xyz",
        "5pm",
        "25:00",
        "2027-1-1",
        "2027-13-01",
        "now+3min",
        "tomorrow+1hour",
        "T",
        "10:00 11:00",
        "12/31 12/30",
        "2027-02-30",
        "99/99",
    ],
)
def test_what_is_no_instant(text):
    with pytest.raises(SlurmError, match=r"Invalid time specification \(pos=\d+\): "):
        parse_instant(text, 1e9)


def test_other_formats_of_instants():
    assert instant_format("%s")(12.0, "N/A") == "12"
    assert instant_format("standard") is format_instant
    assert instant_format("%s")(None, "Unknown") == "Unknown"


INDICES = st.sets(st.integers(0, 2000), min_size=1, max_size=60)


@given(INDICES, st.integers(0, 50))
def test_indices_that_are_printed_are_read_again(indices, limit):
    text = format_indices(sorted(indices), limit)
    spec = parse_array(text)
    assert set(spec.indices) == indices
    assert spec.limit == (limit or None)


@given(st.integers(0, 100), st.integers(0, 300), st.integers(1, 20))
def test_steps(first, length, step):
    spec = parse_array(f"{first}-{first + length}:{step}")
    assert spec.indices == tuple(range(first, first + length + 1, step))
    assert spec.step == (step if len(spec.indices) > 1 else 1)


@pytest.mark.parametrize("text", ["", ",", "a", "5-1", "1-", "-1", "1-9:0", "1001", "1%x", "1;2"])
def test_what_is_no_array(text):
    with pytest.raises(ValueError):
        parse_array(text, max_size=1001)


def test_the_largest_index_is_one_less_than_the_size():
    assert parse_indices("1000", 1001) == (1000,)


HOSTS = st.lists(
    st.tuples(st.sampled_from(["n", "gpu-", "rack1n"]), st.integers(0, 200)), unique=True
)


@given(HOSTS)
def test_a_list_of_hosts_that_is_folded_expands_again(hosts):
    names = [f"{prefix}{number}" for prefix, number in hosts]
    assert sorted(expand_hostlist(fold_hostlist(names))) == sorted(names)


@given(st.lists(st.integers(1, 999), unique=True))
def test_leading_zeros_stay(numbers):
    names = [f"n{number:03}" for number in numbers]
    assert sorted(expand_hostlist(fold_hostlist(names))) == sorted(names)


VALUES = PatternValues(42, "sort", "ann", "n1.cluster", 40, 7)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("%x.%j.%A_%a.%N.%u", "sort.42.40_7.n1.ann"),
        ("%4a-%6j-%10A", "0007-000042-0000000040"),
        ("%99j", "0000000042"),
        ("%s.%t.%n.%J.%b", "batch.0.0.42.7"),
        ("100%%", "100%"),
        ("%q%j", "%q42"),
        (r"raw\%j", "raw%j"),
    ],
)
def test_names_of_output_files(pattern, name):
    assert expand_pattern(pattern, VALUES) == name


def test_output_files_lie_in_the_folder_of_the_job():
    alone = PatternValues(42, "sort", "ann")
    assert output_path(default_output(is_array=False), "/w", alone) == "/w/slurm-42.out"
    assert output_path(default_output(is_array=True), "/w", VALUES) == "/w/slurm-40_7.out"
    assert output_path("/logs/%j", "/w", alone) == "/logs/42"
    assert expand_pattern("%a", alone) == "4294967294"
