"""News of a dispatcher's tasks for streams of results: pushed by the dispatcher."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path
from typing import Self

from vgrads.dispatch.storage.status import listeners
from vgrads.kernel.wakeups import WakeupPipe


class NewsOfEnds:
    """Waits until tasks of a dispatcher have ended; without a pipe, until the time is up."""

    def __init__(self, folder: Path) -> None:
        self._path = listeners(folder) / f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._event = asyncio.Event()
        self._pipe: WakeupPipe | None = None

    async def __aenter__(self) -> Self:
        try:
            self._pipe = WakeupPipe(self._path)
        except OSError:  # a full disk, or no descriptors: the stream looks at intervals
            return self
        asyncio.get_running_loop().add_reader(self._pipe, self._on_news)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pipe is not None:
            asyncio.get_running_loop().remove_reader(self._pipe)
            self._pipe.close()

    def _on_news(self) -> None:
        assert self._pipe is not None
        self._pipe.clear()
        self._event.set()

    async def wait(self, timeout_s: float) -> None:
        """Return at the next news, or after this many seconds."""
        try:
            await asyncio.wait_for(self._event.wait(), timeout_s)
        except TimeoutError:
            return
        finally:
            self._event.clear()
