"""The study in the simulator of the leaderboard: folders that are none, arguments, cells."""

import pytest
from vgrads_studies.spot.late import main
from vgrads_studies.spot.leaderboard import CaseResult, LeaderCase, cells_of, summarize

from vgrads.kernel.errors import InputError


def test_a_folder_that_is_no_checkout_is_one_clear_error(tmp_path):
    with pytest.raises(InputError, match="is not a checkout of the ADRS leaderboard"):
        main(["--leaderboard", str(tmp_path)])
    evaluator = tmp_path / "problems" / "cant_be_late" / "resources" / "evaluator"
    evaluator.mkdir(parents=True)
    (evaluator / "evaluator_real30.py").write_text("")
    with pytest.raises(InputError, match="has no traces"):
        main(["--leaderboard", str(tmp_path)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either FOLDER or --leaderboard"),
        (["a", "--leaderboard", "b"], "either FOLDER or --leaderboard"),
        (["--leaderboard", "b", "--each", "0"], "must be at least 1"),
        (["--leaderboard", "b", "--jobs", "0"], "must be at least 1"),
    ],
)
def test_wrong_arguments_are_one_clear_error(arguments, message):
    with pytest.raises(InputError, match=message):
        main(arguments)


def result_of(score, late=False, warm_us=()):
    return CaseResult(score=score, late=late, warm_us=warm_us)


def test_cells_have_paired_differences_and_their_standard_errors():
    case = LeaderCase(kind="k", trace="t", work_h=48.0, deadline_h=52.0, restart_h=0.1)
    results = [
        (case, {"vgrads": result_of(ours, warm_us=(us,)), "rc_cr_threshold": result_of(theirs)})
        for ours, theirs, us in ((10.0, 20.0, 50.0), (30.0, 32.0, 60.0), (20.0, 26.0, 900.0))
    ]
    (cell,) = cells_of(results)
    assert cell.ahead == pytest.approx(-6.0)
    assert cell.standard_error == pytest.approx(4.0 / 3**0.5)
    assert not cell.within
    summary = summarize(results, [cell])
    assert summary["scores"] == pytest.approx({"vgrads": 20.0, "rc_cr_threshold": 26.0})
    assert (summary["warm_us"], summary["cells_within"]) == (60.0, 0)
    assert summary["missed"] == {"vgrads": 0, "rc_cr_threshold": 0}
