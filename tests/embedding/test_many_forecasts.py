"""Many questions, and scores, for those who may query forecasts alone, of some queues."""

import pytest

from tests.embedding.test_forecast_access import (
    BOUND,
    MISSING,
    OTHER,
    QUESTION,
    client_of,
)
from tests.portal.forecasts.logs_that_grow import scored
from tests.portal.serving import bearer
from vgrads.portal.records.tables import ForecastRow
from vgrads.portal.web.embedding.forecast_access import PUBLIC_RATE

PUBLIC = "mayhem/default"
SCORE = "/v1/sites/mayhem/queues/default/score"
FEW = {"site", "queue", "procs", "walltime_s", "method", "bounds", "curve"}


def ask(client, head, *questions, **more):
    return client.post("/v1/forecasts", json={"questions": list(questions), **more}, headers=head)


def records_of(client, store):
    """The number of records, once all are in the database."""
    client.app.state.service.forecasts.score()
    query = f"SELECT COUNT(*) FROM {ForecastRow.__tablename__}"
    with store.engine.connect() as connection:
        return connection.exec_driver_sql(query).scalar()


def test_a_token_for_one_queue_gets_its_answer_and_an_error_for_the_other(store):
    """The error is that of a queue that does not exist, and names no other."""
    with client_of(store) as client:
        head = bearer(store, "ood", f"forecast:{PUBLIC}")
        answer, refused = ask(client, head, QUESTION, OTHER).json()["forecasts"]
        assert set(answer) == FEW
        assert [b["quantile"] for b in answer["bounds"]] == [0.5, 0.75, 0.9, 0.95]
        pairs = (  # a listing of the queue may come between the two
            (
                ask(client, head, QUESTION).json()["forecasts"][0]["bounds"][-1]["bound_s"],
                client.get(BOUND, headers=head).json()["bound_s"],
            )
            for _ in range(5)
        )
        assert any(listed == single for listed, single in pairs)
        assert set(refused) == {*OTHER, "error"}
        missing = ask(client, head, QUESTION, MISSING).json()["forecasts"][1]
        assert refused["error"] == "site: no site 'mercury' (choose one of mayhem)"
        assert refused["error"].replace("mercury", "atlantis") == missing["error"]
        alone, none = (ask(client, head, question) for question in (OTHER, MISSING))
        assert alone.status_code == none.status_code == 422
        assert alone.text.replace("mercury", "atlantis") == none.text


def test_a_reader_gets_whole_answers_about_all_queues(store):
    with client_of(store) as client:
        answers = ask(client, bearer(store, "ann", "read"), QUESTION, OTHER).json()["forecasts"]
        for answer in answers:
            more = {"jobs", "since", "reason", "warning", "best_submission"}
            assert set(answer) == {*FEW, *more, "closure", "queue_view"}


def test_a_reader_of_forecasts_alone_gets_no_instant_to_submit(store):
    with client_of(store) as client:
        by = QUESTION | {"start_by_s": 3600.0}
        (answer,) = ask(client, bearer(store, "ood", "forecast"), by).json()["forecasts"]
        assert set(answer) == FEW


@pytest.mark.parametrize(("quantile", "code"), [(0.29, 200), (0.9012, 422)])
def test_quantiles_of_readers_of_forecasts_alone_have_two_decimals(store, quantile, code):
    with client_of(store) as client:
        head = bearer(store, "ood", "forecast")
        answer = ask(client, head, QUESTION, quantiles=[0.5, quantile])
        assert answer.status_code == code
        assert answer.json().get("field") == (None if code == 200 else "quantiles.1")
        whole = ask(client, bearer(store, "ann", "read"), QUESTION, quantiles=[quantile])
        assert whole.status_code == 200


def test_requests_without_a_token_leave_no_record(store):
    with client_of(store, public=[PUBLIC]) as client:
        assert "error" not in ask(client, {}, QUESTION).json()["forecasts"][0]
        more_of = {"bound": "", "probability": "&within_s=60", "trajectory": "&start_by_s=60"}
        for name, more in more_of.items():
            assert client.get(BOUND.replace("bound", name) + more).status_code == 200
        assert client.get(BOUND.replace("bound", "score").partition("?")[0]).status_code == 200
        assert client.app.state.service.forecasts.journal.is_empty
        assert records_of(client, store) == 0
        assert ask(client, bearer(store, "ood", "forecast"), QUESTION).status_code == 200
        assert records_of(client, store) == 1


def test_many_questions_without_a_token_have_the_rate_of_such_requests(store):
    most = int(PUBLIC_RATE.partition("/")[0])
    with client_of(store, public=[PUBLIC]) as client:
        codes = [ask(client, {}).status_code for _ in range(5 * most)]
        assert codes[:most] == [422] * most and 429 in codes


def test_the_score_of_a_queue_has_no_counts_for_readers_of_forecasts_alone(store):
    """And no seconds: of one job, they would be its wait."""
    scored(store, "mayhem", "default", 10, 20)
    with client_of(store, public=[PUBLIC]) as client:
        whole = client.get(SCORE, headers=bearer(store, "ann", "read")).json()
        few = client.get(SCORE, headers=bearer(store, "ood", f"forecast:{PUBLIC}")).json()
        assert few == client.get(SCORE).json()
        assert set(few) == {"site", "queue", "quantiles", "reliability", "brier", "warning"}
        for rows, fields in (
            ("quantiles", ("quantile", "coverage")),
            ("reliability", ("stated", "observed")),
        ):
            assert few[rows] == [{name: row[name] for name in fields} for row in whole[rows]]
        assert few["quantiles"][-1]["coverage"] == 0.5
        assert {"records", "scored", "slurm"} <= set(whole)


def test_the_score_of_another_queue_is_not_there(store):
    scored(store, "mercury", "default", 10, 20)
    with client_of(store) as client:
        head = bearer(store, "ood", f"forecast:{PUBLIC}")
        other, missing = (
            client.get(SCORE.replace("mayhem", name), headers=head)
            for name in ("mercury", "atlantis")
        )
        assert other.status_code == missing.status_code == 404
        assert other.text.replace("mercury", "atlantis") == missing.text
        assert client.get("/v1/scores", headers=head).status_code == 403
