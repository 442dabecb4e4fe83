"""Start parameters of a dispatcher."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from vgrads.dispatch.core.protocol import Rules


@dataclass(frozen=True, kw_only=True)
class DispatcherConfig:
    """Folder and rules of a dispatcher. ``secret``: agents' keys are derived from it; ``run``:
    prefix of the names of its slots at their sites; ``durable``: what was acknowledged outlives a
    crash of this machine, not only of this process."""

    folder: Path
    secret: bytes
    rules: Rules = field(default_factory=Rules)
    idle_s: float | None = 60.0
    run: str = ""
    durable: bool = True
