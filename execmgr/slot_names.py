"""Names of slots at their sites: a slot that is requested again gets a new name."""

from __future__ import annotations


def spec_id(slot_id: str, run: str, again: int = 0) -> str:
    """Return the id of a run's slot at its site; ``again``: how often it was requested again."""
    return f"{run}.{slot_id}.again{again}" if again else f"{run}.{slot_id}"


class SlotNames:
    """Names of a run's slots, and earlier names under which resources may still be held."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._again: dict[str, int] = {}  # how often a slot was requested again
        self._outdated: dict[str, str] = {}  # earlier names, and their sites

    def of(self, slot: str) -> str:
        """Return the name of a slot at its site."""
        return spec_id(slot, self._run, self._again.get(slot, 0))

    def rename(self, slot: str, again: int, site: str) -> None:
        """Record how often the slot was requested again."""
        self._again[slot] = again
        for before in range(again):
            self._outdated[spec_id(slot, self._run, before)] = site

    @property
    def any_outdated(self) -> bool:
        """True if resources may still be held under an earlier name."""
        return bool(self._outdated)

    def outdated(self, site: str) -> list[str]:
        """Return earlier names at a site that are not known to be released."""
        return [name for name, where in self._outdated.items() if where == site]

    def drop(self, name: str) -> None:
        """Remove a name whose slot is released."""
        del self._outdated[name]
