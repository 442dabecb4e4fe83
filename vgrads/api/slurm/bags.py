"""The open bags of a service, one for each shape of jobs, and the jobs that are their tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from vgrads.api.bags.in_process import LocalCalls, LocalChannel
from vgrads.api.bags.open_calls import Ended, OnEnds
from vgrads.api.slurm.folders import JobFolders
from vgrads.api.slurm.journal import JobJournal
from vgrads.api.slurm.outcomes import place_of
from vgrads.api.slurm.records import NOT_RELEASED, JobRecord
from vgrads.api.slurm.shapes import JobShape, Partitions, shape_of
from vgrads.slurm.job import JobState

Receive = Callable[[tuple[int, Sequence[Ended]]], None]
"""Called in the dispatcher's thread with the number of a bag and ends of its tasks."""


class ShapeBag:
    """The open bag of the jobs of a shape."""

    def __init__(self, number: int, calls: LocalCalls) -> None:
        self.number, self.calls, self.count = number, calls, 0
        self.records: dict[int, JobRecord] = {}  # by task, until they have ended


class ShapeBags:
    """All bags of a service."""

    def __init__(
        self,
        journal: JobJournal,
        folders: JobFolders,
        channel: LocalChannel,
        partitions: Partitions,
        receive: Receive,
    ) -> None:
        self._journal, self._folders, self._channel = journal, folders, channel
        self._partitions, self._receive = partitions, receive
        self._bags: dict[int, ShapeBag] = {}
        self._of_shape: dict[JobShape, ShapeBag] = {}

    def start(self) -> list[tuple[ShapeBag, int]]:
        """Take up the bags of an earlier process; return the tasks that ended while nobody
        looked."""
        table = self._journal.table
        for number, shape in table.bags.items():
            calls = self._channel.adopt(number, self._receiver(number))
            self._bags[number] = ShapeBag(number, calls)
            self._of_shape[JobShape(*shape)] = self._bags[number]
        if not self._bags:
            return []
        self._channel.start()
        for record in table.records.values():
            if record.is_released and not record.state.is_terminal:
                self._bags[record.bag].records[record.task] = record
        return [(bag, task) for bag in self._bags.values() for task in self._take_up(bag)]

    def _take_up(self, bag: ShapeBag) -> list[int]:
        """Return the tasks of a bag that have ended; jobs that it never got are released again."""
        bag.count = bag.calls.count_tasks()
        lost = [task for task in bag.records if task >= bag.count]
        self.change([bag.records.pop(task) for task in lost], NOT_RELEASED)
        return [task for task in bag.records if bag.calls.has_ended(task)]

    def stop(self, leave: bool) -> None:
        """End the dispatcher; ``leave``: its agents go on."""
        self._channel.stop(leave)

    def numbered(self, number: int) -> ShapeBag:
        """Return a bag by its number."""
        return self._bags[number]

    def change(self, records: Iterable[JobRecord], changes: dict[str, object]) -> None:
        """Change jobs, and store that."""
        numbers = [record.id for record in records]
        if numbers:
            self._journal.write({"jobs": numbers, "changes": changes}, durable=False)

    def release(self, records: Sequence[JobRecord]) -> None:
        """Add jobs of one submission to the bag of their shape."""
        first = records[0].submission
        runs_s = self._journal.table.runs_s[first.run_key]
        bag = self._bag(shape_of(first, runs_s))
        at, numbers = bag.count, [record.id for record in records]
        released = {"released": numbers, "bag": bag.number, "task": at}
        # stored first: after a crash the bag's number of tasks shows which of these it never got
        self._journal.write(released, durable=False)
        bag.records |= {at + place: record for place, record in enumerate(records)}
        bag.count += len(records)
        bag.calls.add([self._folders.command(*place_of(record)) for record in records])

    def _bag(self, shape: JobShape) -> ShapeBag:
        if shape not in self._of_shape:
            sites = self._partitions.sites[shape.partition]
            number = self._channel.next_number
            calls = self._channel.open(shape.document(sites), self._receiver(number))
            self._journal.write({"bag": number, "shape": shape.to_json()})
            self._bags[number] = self._of_shape[shape] = ShapeBag(number, calls)
        return self._of_shape[shape]

    def _receiver(self, number: int) -> OnEnds:
        return lambda ends: self._receive((number, ends))

    def withdraw(self, records: Sequence[JobRecord]) -> None:
        """Take jobs back that no node has."""
        for bag in self._bags.values():
            tasks = [r.task for r in records if r.bag == bag.number and r.task in bag.records]
            dropped = sorted(bag.calls.cancel(tasks)) if tasks else []
            self.change([bag.records.pop(task) for task in dropped], NOT_RELEASED)

    def just_begun(self) -> list[JobRecord]:
        """Return the jobs that wait as far as is stored, and that a node has."""
        return [
            record
            for bag in self._bags.values()
            for task, record in bag.records.items()
            if record.state is JobState.PENDING and bag.calls.is_running(task)
        ]
