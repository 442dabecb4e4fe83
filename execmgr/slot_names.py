"""What slots are called at their sites: a slot that is asked for anew gets a new name."""

from __future__ import annotations

from vgrads.execmgr.core.book import spec_id


class SlotNames:
    """Names of a run's slots, and those of before under which something may still be held."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._again: dict[str, int] = {}  # slots that were asked for anew, and how often
        self._outdated: dict[str, str] = {}  # what they were called before, and at which site

    def of(self, slot: str) -> str:
        """What a slot is called at its site."""
        return spec_id(slot, self._run, self._again.get(slot, 0))

    def rename(self, slot: str, again: int, site: str) -> None:
        """The slot was asked for anew so often."""
        self._again[slot] = again
        for before in range(again):
            self._outdated[spec_id(slot, self._run, before)] = site

    def outdated(self, site: str) -> list[str]:
        """Names of before at a site, of which nothing is known to be given back."""
        return [name for name, where in self._outdated.items() if where == site]

    def drop(self, name: str) -> None:
        """What had this name is given back."""
        del self._outdated[name]
