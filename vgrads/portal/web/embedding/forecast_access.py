"""Access to forecasts from pages of other origins, and without a token: which requests, which
answers.

Cross-origin requests follow the Fetch standard (https://fetch.spec.whatwg.org/#http-cors-protocol),
without credentials: a session's cookie never counts in them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response

from vgrads.kernel.errors import InputError
from vgrads.portal.records.access import Principal, forecast_scope
from vgrads.vgrid.catalog import Catalog, split_queue_name

Json = dict[str, Any]

FORECASTS = "/v1/forecasts"
_OF_QUEUE = re.compile(r"/v1/sites/([^/]+)/queues/([^/]+)/(?:bound|probability|trajectory|score)")
_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
_PREFLIGHT_S = 600  # for which a browser need not repeat it
ANYBODY = "(anybody)"
"""The user of requests without a token; no token can have this name."""
PUBLIC_RATE = "10/second"
"""Requests without a token, of one address."""
CONFIDENCES = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Choices of readers of forecasts alone."""
_PUBLIC_FIELDS = {
    *("bound_s", "probability", "confidence", "method", "within_s"),
    *("submit_in_s", "walltime_s", "best", "trajectory", "level"),
}
"""Fields for readers of forecasts alone; the others count or date the jobs of users."""
_PUBLIC_OF_MANY = ("site", "queue", "procs", "walltime_s", "method", "bounds", "curve", "error")
_PUBLIC_OF_SCORE = {
    "quantiles": ("quantile", "coverage"),
    "reliability": ("stated", "observed"),
}
"""Shares; of few jobs, the losses in seconds would be the waits of each."""
_OPEN = (
    "/static/",
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/api",
    "/login",
    "/logout",
    "/favicon",
)
_CHECKED = ("/v1/", "/metrics")  # their routes check the scope


@dataclass(frozen=True, kw_only=True)
class ForecastAccess:
    """``origins``: of pages that may query forecasts; ``public``: queues, as ``SITE/QUEUE``, whose
    forecasts need no token."""

    origins: Collection[str] = ()
    public: Collection[str] = ()
    anybody: Principal = field(init=False)

    def __post_init__(self) -> None:
        scopes = frozenset(forecast_scope(name) for name in self.public)
        object.__setattr__(self, "anybody", Principal(ANYBODY, scopes))

    def is_foreign(self, headers: Headers, method: str, path: str) -> bool:
        """Return True for a forecast query from a page of an allowed origin."""
        return headers.get("origin", "") in self.origins and is_forecast(method, path)

    def preflight(self, headers: Headers, method: str, path: str) -> Response | None:
        """Return the answer to a browser that requests permission for a forecast query; None for
        any other request."""
        announced = headers.get("access-control-request-method", "")
        if method != "OPTIONS" or not self.is_foreign(headers, announced, path):
            return None
        allowed = {
            "access-control-allow-methods": announced,
            "access-control-allow-headers": "authorization, content-type",
            "access-control-max-age": str(_PREFLIGHT_S),
        }
        return Response(status_code=204, headers=allowed)

    def response_headers(self, headers: Headers, method: str, path: str) -> dict[str, str]:
        """Return the headers that let the page of an allowed origin read an answer."""
        announced = headers.get("access-control-request-method", "")
        query = announced if method == "OPTIONS" else method
        if not self.origins or not is_forecast(query, path):
            return {}
        if not self.is_foreign(headers, query, path):
            # a cache must not give this answer, without the permission, to a page that has it
            return {"vary": "Origin"}
        return {
            "access-control-allow-origin": headers["origin"],
            "cross-origin-resource-policy": "cross-origin",
            "vary": "Origin",
        }

    def without_token(self, method: str, path: str) -> Principal | None:
        """Return the principal of a request without a token, where it queries a public queue, or
        several queues, of which the public ones are answered."""
        if path == FORECASTS:
            return self.anybody if method == "POST" and self.public else None
        match = _OF_QUEUE.fullmatch(path)
        if method != "GET" or match is None:
            return None
        return self.anybody if self.anybody.may_forecast(match[1], match[2]) else None


def is_forecast(method: str, path: str) -> bool:
    """Return True for a query for forecasts."""
    return (
        method == "POST"
        if path == FORECASTS
        else method == "GET" and bool(_OF_QUEUE.fullmatch(path))
    )


def may_open(who: Principal, path: str) -> bool:
    """Return True for addresses that a user may open: pages are for those who may read."""
    return who.may("read") or path.startswith(_CHECKED) or path.startswith(_OPEN)


def checked_origin(text: str) -> str:
    """Return an origin as browsers send it. ValueError for anything else."""
    if not _ORIGIN.fullmatch(text):
        raise ValueError(
            f"'{text}' is not an origin: write https://name or https://name:port, in lower case, "
            "without a path; '*' is not possible, list each origin"
        )
    return text


def checked_queue(text: str) -> str:
    """Return ``SITE/QUEUE``. ValueError for anything else."""
    if not all(split_queue_name(text)):
        raise ValueError(f"'{text}' is not a queue: write SITE/QUEUE")
    return text


def refuse_missing_queue(who: Principal, site: str, queue: str) -> None:
    """Raise HTTPException 404, as for a queue that does not exist, where the user may not query
    this one."""
    if not who.may_forecast(site, queue):
        raise HTTPException(404, f"no queue '{site}/{queue}'")


def refuse_details(
    who: Principal, probability: float | None, confidence: float, explain: bool = False
) -> None:
    """Reject, for readers of forecasts alone, explanations, which describe jobs, and unusual
    probabilities and confidences: the model is trained for each."""
    if who.may("read"):
        return
    if explain:
        raise HTTPException(403, "explanations need a token with the scope 'read'")
    if probability is not None:
        _refuse_unusual(probability, "probability")
    if confidence not in CONFIDENCES:
        choices = ", ".join(map(str, CONFIDENCES))
        raise InputError(f"{confidence} is not a choice", where="confidence", fix=choices)


def refuse_quantiles(who: Principal, quantiles: Sequence[float]) -> None:
    """Reject unusual quantiles for readers of forecasts alone, as above."""
    if not who.may("read"):
        for n, quantile in enumerate(quantiles):
            _refuse_unusual(quantile, f"quantiles.{n}")


def _refuse_unusual(probability: float, where: str) -> None:
    if round(probability, 2) != probability:
        raise InputError(f"{probability} has more than two decimals", where=where)


def public_catalog(who: Principal, catalog: Catalog) -> Catalog:
    """Return the sites and queues whose forecasts this user may query."""
    if who.may("read"):
        return catalog
    sites = (
        replace(site, queues=tuple(q for q in site.queues if who.may_forecast(site.name, q.name)))
        for site in catalog.sites
    )
    return replace(catalog, sites=tuple(site for site in sites if site.queues))


def public_questions(who: Principal, questions: Sequence[Any]) -> list[Any]:
    """Return questions without what this user gets no answer to: instants of submission."""
    if who.may("read"):
        return list(questions)
    return [
        {name: value for name, value in question.items() if name != "start_by_s"}
        if isinstance(question, dict)
        else question
        for question in questions
    ]


def public_answer(who: Principal, answer: Json) -> Json:
    """Return an answer with the fields that this user may read."""
    if who.may("read"):
        return answer
    return {name: value for name, value in answer.items() if name in _PUBLIC_FIELDS}


def public_answers(who: Principal, answers: list[Json]) -> list[Json]:
    """Return the answers to many questions with the fields that this user may read."""
    if who.may("read"):
        return answers
    return [_check_only(answer, _PUBLIC_OF_MANY) for answer in answers]


def public_score(who: Principal, score: Json) -> Json:
    """Return the score of a queue with the fields that this user may read."""
    if who.may("read"):
        return score
    shares = {
        name: [_check_only(row, fields) for row in score[name]]
        for name, fields in _PUBLIC_OF_SCORE.items()
    }
    return _check_only(score, ("site", "queue", "brier", "warning")) | shares


def _check_only(document: Json, fields: Collection[str]) -> Json:
    return {name: document[name] for name in fields if name in document}
