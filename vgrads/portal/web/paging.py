"""Pages of lists, the same for every one: ``limit``, ``after``, and the header ``Link`` with the
next page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response

MOST = 500
NameFilter = Annotated[str, Query(alias="name", max_length=200, description="Only of this name.")]
_Row = TypeVar("_Row")
_After = Annotated[
    str, Query(max_length=300, description="Continue after this; the header Link has it.")
]


class Paging:
    """The page that a request is for. ``limit``: the most entries; ``after``: where it begins."""

    def __init__(self, request: Request, response: Response, limit: int, after: str) -> None:
        self._request, self._response = request, response
        self.limit, self.after = limit, after

    def page(self, rows: Sequence[_Row], cursor: Callable[[_Row], str]) -> Sequence[_Row]:
        """Return the rows of the page, of one more than there may be; name the next page."""
        if len(rows) <= self.limit:
            return rows
        page = rows[: self.limit]
        others = {k: v for k, v in self._request.query_params.items() if k != "after"}
        query = urlencode({**others, "limit": self.limit, "after": cursor(page[-1])})
        self._response.headers["Link"] = f'<{self._request.url.path}?{query}>; rel="next"'
        return page

    def page_of_all(self, rows: Sequence[_Row], name: Callable[[_Row], str]) -> Sequence[_Row]:
        """Return the rows of the page, of all there are, which have names of their own: after the
        one of that name; where that is gone, those whose names are later."""
        names = [name(row) for row in rows]
        if self.after in names:
            rows = rows[names.index(self.after) + 1 :]
        elif self.after:
            rows = [row for row, own in zip(rows, names, strict=True) if own > self.after]
        return self.page(rows, name)


async def _read_page(
    request: Request,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=MOST, description="Most entries.")] = 100,
    after: _After = "",
) -> Paging:
    return Paging(request, response, limit, after)


async def _read_short_page(
    request: Request,
    response: Response,
    limit: Annotated[
        int | None, Query(ge=1, le=MOST, description="Most entries; none: all.")
    ] = None,
    after: _After = "",
) -> Paging:
    return Paging(request, response, 10**9 if limit is None else limit, after)


Page = Annotated[Paging, Depends(_read_page)]
ShortPage = Annotated[Paging, Depends(_read_short_page)]
"""The page of a short list: all of it unless ``limit`` is stated."""
