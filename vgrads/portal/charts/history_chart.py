"""The last runs of one name as a picture: how long each took of the time that it had, whether its
promise was kept, what was promised, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup, escape

from vgrads.kernel.units import format_duration

_COLUMN, _LEFT, _TOP, _BARS = 34.0, 84.0, 16.0, 130.0
_ROW = 22.0
_LEAST_SHARE, _MOST_SHARE = 1.05, 1.5
"""Bars end here, in times of the deadline; longer ones have an arrow."""


@dataclass(frozen=True, kw_only=True)
class PastRun:
    """A run: its page, start, verdict (``kept``, ``broken``; others ended without one), the
    probability that was promised, seconds until enough was done (``took_s``; None: not known) of
    those until the deadline, cost in dollars."""

    path: str
    started: datetime
    state: str
    promised: float | None
    took_s: float | None
    deadline_s: float | None
    spent_usd: float | None

    @property
    def share(self) -> float | None:
        """The time that it took, as a share of the time that it had."""
        if self.took_s is None or not self.deadline_s:
            return None
        return self.took_s / self.deadline_s


def history_chart(runs: Sequence[PastRun]) -> Markup:
    """Draw runs, oldest first: SVG, whose colours are those of the page."""
    width, height = _LEFT + _COLUMN * len(runs) + 8, _TOP + _BARS + 4 * _ROW
    highest = max((run.share or 0.0 for run in runs), default=0.0)
    scale = _BarScale(min(_MOST_SHARE, max(_LEAST_SHARE, highest)))
    columns = (_draw_column(run, n, scale) for n, run in enumerate(runs))
    parts = [*_draw_axis(width, scale), *columns, *_draw_titles()]
    kept = sum(run.state == "kept" for run in runs)
    label = f"{kept} of {len(runs)} runs kept their promise; the table below has all numbers"
    return Markup(
        f'<svg class="history" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="group" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


@dataclass(frozen=True)
class _BarScale:
    """``top``: the largest share of the deadline that is drawn."""

    top: float

    def y(self, share: float) -> float:
        """Return the height of a share, in pixels from above."""
        return round(_TOP + _BARS * (1.0 - min(share, self.top) / self.top), 1)


def _draw_axis(width: float, scale: _BarScale) -> list[str]:
    lines = []
    for share, kind, text in ((0.0, "axis", "0"), (0.5, "axis", "half"), (1.0, "due", "deadline")):
        y = scale.y(share)
        lines.append(f'<line class="{kind}" x1="{_LEFT}" x2="{width:.0f}" y1="{y}" y2="{y}"/>')
        lines.append(
            f'<text class="label" x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{text}</text>'
        )
    return lines


def _draw_titles() -> list[str]:
    base = _TOP + _BARS
    return [
        f'<text class="label" x="{_LEFT - 8}" y="{base + _ROW * n - 6}" text-anchor="end">'
        f"{text}</text>"
        for n, text in ((1, "day"), (2, "promised %"), (3, "kept"), (4, "cost $"))
    ]


def _draw_column(run: PastRun, number: int, scale: _BarScale) -> str:
    x, base = _LEFT + _COLUMN * number, _TOP + _BARS
    middle = x + _COLUMN / 2
    kind = {"kept": "good", "broken": "bad"}.get(run.state, "other")
    # a sign as well, for those who cannot tell the colours apart
    sign = {"kept": "✓", "broken": "✕"}.get(run.state, "–")
    share = run.share
    parts = []
    if share is not None:
        y = scale.y(share)
        parts.append(
            f'<rect class="{kind}" x="{x + 6}" y="{y}" width="{_COLUMN - 12}" '
            f'height="{max(1.0, base - y):.1f}" rx="2"/>'
        )
        if share > scale.top:
            parts.append(_draw_text(middle, _TOP - 4, "↑"))
    promised = "" if run.promised is None else f"{100 * run.promised:.0f}"
    cost = "" if not run.spent_usd else f"{run.spent_usd:.2g}"
    parts += [
        _draw_text(middle, base + _ROW - 6, str(run.started.day)),
        _draw_text(middle, base + 2 * _ROW - 6, promised),
        _draw_text(middle, base + 3 * _ROW - 6, sign, f"sign {kind}"),
        _draw_text(middle, base + 4 * _ROW - 6, cost),
    ]
    title = f"<title>{escape(_describe_run(run))}</title>"
    return f'<a href="{escape(run.path)}">{title}{"".join(parts)}</a>'


def _draw_text(x: float, y: float, words: str, kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{words}</text>'


def _describe_run(run: PastRun) -> str:
    verdict = {"kept": "kept", "broken": "missed"}.get(run.state, run.state)
    took = "" if run.took_s is None else f" after {format_duration(run.took_s)}"
    return f"{run.started:%Y-%m-%d %H:%M}: {verdict}{took}"
