"""What a dispatcher is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from vgrads.dispatch.core.talk import Rules


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where a dispatcher works and by which rules. ``secret``: hosts' keys are made from it;
    ``run``: what the names of its slots begin with at their sites."""

    folder: Path
    secret: bytes
    rules: Rules = field(default_factory=Rules)
    idle_s: float | None = 60.0
    run: str = ""
