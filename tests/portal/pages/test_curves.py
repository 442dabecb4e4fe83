"""Line charts: axes of numbers, and step curves."""

import re

from hypothesis import given
from hypothesis import strategies as st

from vgrads.portal.charts.curves import Curve, CurveChart, curves_svg, step_points
from vgrads.portal.charts.pool_chart import pool_chart
from vgrads.portal.charts.rates import rate_chart

BOX = (52, 462, 38, 230)
"""The part of a picture that shows values: left, right, top, bottom."""


def chart(most, points=((0.0, 0.0),)):
    curves = (Curve(label="", points=tuple(points)),)
    return CurveChart(
        title="", x_label="", y_label="", curves=curves, x_range=(0.0, 10.0), y_most=most
    )


@given(st.floats(1e-6, 1e9))
def test_an_axis_of_numbers_has_two_to_six_round_ticks_and_reaches_the_most(most):
    ticks = chart(most).y_ticks
    assert 2 <= len(ticks) <= 6
    assert ticks[0] == 0
    assert ticks[-1] >= most * (1 - 1e-6)
    assert ticks[-1] < 2.6 * most


@given(st.integers(1, 10**6))
def test_an_axis_of_whole_numbers_has_whole_ticks(most):
    assert all(tick == int(tick) for tick in chart(most).y_ticks)


@given(
    st.floats(0.1, 1e6),
    st.lists(st.tuples(st.floats(-20, 20), st.floats(-10, 1e7)), min_size=1, max_size=20),
)
def test_every_point_is_inside_the_picture(most, points):
    (line,) = re.findall(r'<polyline points="([^"]*)"', curves_svg([chart(most, points)]))
    places = [tuple(map(float, place.split(","))) for place in line.split()]
    left, right, top, bottom = BOX
    assert len(places) == len(points)
    assert all(left <= x <= right and top <= y <= bottom for x, y in places)


def test_a_step_curve_changes_at_its_samples_only_and_goes_on_to_the_end():
    changed = step_points([(0, 1), (2, 5), (3, 4)], 9)
    assert changed == ((0, 1), (2, 1), (2, 5), (3, 5), (3, 4), (9, 4))
    assert step_points([], 9) == ()


def test_rates_are_drawn_from_five_samples_on_and_pools_from_two():
    samples = [(float(at_s), 1250.0 * (at_s == 4), 3) for at_s in range(5)]
    assert rate_chart(samples[:4]) == ""
    page = rate_chart(samples)
    assert page.count("<svg") == 2
    assert ">1,500<" in page
    moments = [(100.0, {"decided": 4, "running": 1, "capacity": None}), (160.0, {"decided": 8})]
    page = pool_chart(moments)
    assert "Workers now: 8 decided, unknown running, unknown of use at most" in page
    assert pool_chart(moments[:1]) == ""
