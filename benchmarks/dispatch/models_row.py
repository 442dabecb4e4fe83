"""What a model says beside what passed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line: what, the model's seconds, those that passed, how far they are apart."""

    what: str
    model_s: float
    elapsed_s: float

    @property
    def off(self) -> float:
        return self.model_s / self.elapsed_s - 1.0
