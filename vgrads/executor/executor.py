"""``vgrads.Executor``: Python functions as tasks, by the interface of :mod:`concurrent.futures`."""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.thread  # first: what is registered last is called first at the exit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING, Any

from vgrads.agent.functions.packing import pack
from vgrads.api.bags.open_calls import Channel, Ended
from vgrads.executor.chunks import ChunkedMap
from vgrads.executor.connect import Place, place_of
from vgrads.executor.encoding import CallEncoder, digest_of, dump_arguments, dump_named
from vgrads.executor.keyed import ResultKey
from vgrads.executor.options import (
    CallOptions,
    call_options,
    options_of,
    sets_lock_of_tqdm,
)
from vgrads.executor.results import BagFutures, CallFuture, Deliverer
from vgrads.kernel.errors import InputError

if TYPE_CHECKING:
    from vgrads.interface.catalogs import Sites

_OPEN: weakref.WeakSet[ExecutorSession] = weakref.WeakSet()
_EXIT = threading.Event()
"""Set when the interpreter ends: no dispatcher can be started any more."""


class CallBag:
    """One open bag of calls with equal options: its encoder, and the futures of its calls."""

    def __init__(self, channel: Channel, document: dict[str, Any], deliverer: Deliverer) -> None:
        self.futures = BagFutures(deliverer.put)
        self.futures.calls = self.calls = channel.open(document, self.futures.on_ends)
        self.encoder = CallEncoder(self.calls)
        self._count = 0

    def add(self, future: CallFuture, command: str) -> None:
        """Add a call; its end completes the future."""
        with self.futures.lock:
            if self.futures.problem:
                raise RuntimeError(f"no more calls can be submitted: {self.futures.problem}")
            if future.key is not None and self.calls.address:
                future.key.submitting(self.calls.address, self._count)
            # before the call is sent, since its end may come at once
            future.bag, future.task = self.futures, self._count
            self.futures.waiting[self._count] = future
            self._count += 1
            self.calls.add([command])


class ExecutorSession:
    """What an executor owns: its connection and its bags. It outlives the executor until all calls
    have ended. A process that is forked meanwhile has a copy without threads, whose locks may be
    held for ever: there it does nothing and accepts no calls."""

    def __init__(self, place: Place, setup: Sequence[Any]) -> None:
        self._process = os.getpid()
        self.place, self._setup, self._setup_digest = place, setup, digest_of(setup)
        self.lock, self.closed = threading.RLock(), False
        self._channel: Channel | None = None
        self._bags: dict[CallOptions, CallBag] = {}
        self._deliverer = Deliverer()
        self.by_key: dict[str, CallFuture] = {}
        # calls whose arguments are results of other calls, or of earlier programs
        self._waiting = 0
        self._interrupted = False
        self._all_ready = threading.Condition(self.lock)

    @property
    def places(self) -> int:
        """Return how many calls run at once, as far as it is known."""
        return self.place.places

    def bag(self, options: CallOptions) -> CallBag:
        """Return the open bag of calls with these options."""
        with self.lock:
            if options not in self._bags:
                self._bags[options] = self._open(self._connected(), options)
            return self._bags[options]

    def _connected(self) -> Channel:
        if self._channel is None:
            self._channel = self.place.connect()
            _OPEN.add(self)
        return self._channel

    def find(self, key: str) -> CallFuture | None:
        """Return the future of the call that was submitted under a key, in this program or an
        earlier one; None where none was, or where it did not return before its program ended."""
        self.refuse_in_fork()
        results = self.place.results
        if results is None:
            raise InputError("is needed for results by key", where="name", fix="name the executor")
        with self.lock:
            if key not in self.by_key:
                future = self._restored(ResultKey(results, key))
                if future is None:
                    return None
                self.by_key[key] = future
            return self.by_key[key]

    def _restored(self, key: ResultKey) -> CallFuture | None:
        if parts := key.results.value(key.key):
            future = CallFuture()
            future.complete(parts)
            return future
        call = key.results.call(key.key)
        if call is None or self.closed:
            return None
        future = CallFuture()
        future.key = key

        def on_ends(ends: Sequence[Ended]) -> None:
            self._deliverer.put(partial(self._finish_restored, future, ends))

        if not self._connected().attach(call.bag, call.task, on_ends):
            return None
        self.delay(1)
        return future

    def _finish_restored(self, future: CallFuture, ends: Sequence[Ended]) -> None:
        for ended in ends:
            future.finish(ended)
        self.delay(-1)

    def _open(self, channel: Channel, options: CallOptions) -> CallBag:
        document = self.place.document | {
            "open": True,
            "procs": options.cores,
            "memory_mib": options.memory_mib,
            "retries": options.retries,
            "functions": {"command": self.place.command, "setup": self._setup_digest},
        }
        if options.limit_s:
            document["limit"] = options.limit_s
        bag = CallBag(channel, document, self._deliverer)
        bag.calls.put(self._setup_digest, self._setup)
        return bag

    def refuse_in_fork(self) -> None:
        """Raise RuntimeError in a process that was forked from that of the executor."""
        if self._is_copy():
            raise RuntimeError("an executor is of the process that made it: make another one here")

    def _is_copy(self) -> bool:
        return os.getpid() != self._process

    def refuse_if_closed(self) -> None:
        """Raise RuntimeError if no more calls are accepted."""
        self.refuse_in_fork()
        with self.lock:
            if self.closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if _EXIT.is_set():
                raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    def delay(self, by: int) -> None:
        """Count calls that are submitted when their arguments are there."""
        with self._all_ready:
            self._waiting += by
            self._all_ready.notify_all()

    def shut_down(self, wait: bool, cancel: bool = False) -> None:
        """Accept no more calls. ``cancel``: those that no node has yet; ``wait``: for the rest."""
        if self._is_copy():
            return
        with self.lock:
            self.closed = True
            bags = list(self._bags.values())
        if cancel:
            for bag in bags:
                bag.futures.cancel_all(list(bag.futures.waiting.values()))
        if wait:
            self._finish(bags)
        else:
            threading.Thread(target=self._finish, args=(bags,), daemon=True).start()

    def interrupt(self) -> None:
        """At Ctrl-C: drop the calls that no node has yet, end the others, and wait for none. A
        service goes on with those of an executor with a name: their results outlive the program."""
        if self._is_copy():
            return
        with self._all_ready:
            self.closed = self._interrupted = True
            bags = list(self._bags.values())
            self._all_ready.notify_all()
        for bag in bags:
            bag.futures.cancel_all(list(bag.futures.waiting.values()))
        if self._channel is not None:
            self._channel.interrupt()

    def _finish(self, bags: Sequence[CallBag]) -> None:
        # calls that wait for their arguments still need an open bag
        with self._all_ready:
            self._all_ready.wait_for(lambda: not self._waiting or self._interrupted)
        for bag in bags:
            bag.calls.close()
        if self._channel is not None:
            self._channel.shutdown(wait=True)
            _OPEN.discard(self)
        self._deliverer.end()
        self._deliverer.join()
        self.place.clean_up()


class Executor(concurrent.futures.Executor):
    """Runs Python functions on this machine, on the sites of a file, or through a service.

    ``sites``: ``"local"``; a TOML file or mapping of sites; the address of a service
    (``"http://…"``), with its ``token``. ``max_workers``: how many calls run at once on this
    machine, by default one for each processor. ``name``: of its results by key (:meth:`submit_as`).
    ``environment``: the Python of the calls, of the same version as this one: the folder of a
    virtual environment, ``"conda:NAME"`` or ``"module:NAME"``. ``initializer(*initargs)``: called
    once in each interpreter.

    A call that raises raises here, with its traceback there as the cause. One whose process ends
    raises :class:`vgrads.TaskFailed`, and costs no other call.

    >>> with Executor() as executor:
    ...     list(executor.map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    def __init__(  # noqa: PLR0913 those of concurrent.futures, and where
        self,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        sites: Sites = "local",
        name: str = "",
        environment: str = "",
        token: str = "",
    ) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        first = None
        if initializer is not None and not sets_lock_of_tqdm(initializer):
            first = pack(dump_named("the initializer", (initializer, initargs)))
        # the working folder of this program (an empty entry) does not exist on nodes
        path = [folder for folder in sys.path if folder]
        place = place_of(sites, name, environment, max_workers, token)
        self._session = ExecutorSession(place, dump_named("the path of modules", (path, first)))
        self._default = CallOptions()
        self._ended = weakref.finalize(self, self._session.shut_down, False)
        self._ended.atexit = False  # at the exit of the program, calls are waited for

    def submit(self, fn: Callable[..., Any], /, *args: object, **kwargs: object) -> CallFuture:
        """Schedule a call; return its future. Futures among the arguments are replaced by their
        results, when these are there."""
        self._session.refuse_if_closed()
        return self._submit(CallFuture(), fn, args, kwargs)

    def submit_as(
        self, key: str, fn: Callable[..., Any], /, *args: object, **kwargs: object
    ) -> CallFuture:
        """Schedule a call whose result outlives the program; return its future. If this program or
        an earlier one with an executor of this name has submitted a call under the key, return the
        future of that call: it is not called again, unless it raised or was lost.

        ``key``: any text. The function and its arguments are not compared: use another key for
        another call. Raise InputError for an executor without a name.
        """
        session = self._session
        session.refuse_in_fork()
        with session.lock:
            future = session.find(key)
            if future is not None and not _has_failed(future):
                return future
            session.refuse_if_closed()
            assert session.place.results is not None
            future = session.by_key[key] = CallFuture()
            future.key = ResultKey(session.place.results, key)
        return self._submit(future, fn, args, kwargs)

    def find(self, key: str) -> CallFuture:
        """Return the future of the call that was submitted under a key, by this program or an
        earlier one. Raise KeyError where there is none; InputError without a name."""
        future = self._session.find(key)
        if future is None:
            raise KeyError(key)
        return future

    def _submit(
        self,
        future: CallFuture,
        fn: Callable[..., Any],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> CallFuture:
        session = self._session
        try:
            parts, earlier = dump_arguments((args, kwargs))
            bag = session.bag(options_of(fn, self._default))
            if earlier:
                _After(session, bag, (future, fn, parts), earlier)
            else:
                bag.add(future, bag.encoder.command(fn, parts))
        except (TypeError, ValueError, OSError, InputError) as error:  # of this call alone
            future.set_exception(error)
        return future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[Any]:
        """Return the results of calls for each item, in order. ``chunksize``: how many items one
        task has; by default so many that a task takes about a tenth of a second. Where all
        iterables are without a length, which may be endless, a few chunks for each place are
        submitted at a time, and further items are taken as results are."""
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        rows: Iterator[tuple[Any, ...]] = zip(*iterables, strict=False)
        count = None
        if not iterables or any(isinstance(each, Sized) for each in iterables):
            collected = list(rows)
            rows, count = iter(collected), len(collected)
        # by its public name, as in the standard library: whoever replaces `submit` sees all calls
        places = self._session.places
        return ChunkedMap(self.submit, fn, rows, count, places, chunksize).results(timeout)

    def with_options(
        self,
        *,
        cores: int = 1,
        memory: float | str = 0,
        limit: float | str = 0,
        retries: int = 0,
    ) -> Executor:
        """Return this executor with other options for calls of functions that state none:
        processors of one node, memory (``"4GB"``), time limit (``"10m"``), retries."""
        other = Executor.__new__(Executor)
        other._session, other._ended = self._session, self._ended
        other._default = call_options(cores, memory, limit, retries)
        return other

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. ``wait``: return when all have ended; ``cancel_futures``: those
        that no node has yet are cancelled."""
        if self._ended.detach() is not None:
            self._session.shut_down(wait, cancel_futures)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for all calls; after Ctrl-C, end them."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._session.interrupt()
        self.shutdown()


class _After:
    """A call that is submitted when the futures among its arguments are done."""

    def __init__(
        self,
        session: ExecutorSession,
        bag: CallBag,
        call: tuple[CallFuture, Callable[..., Any], list[Any]],
        earlier: Sequence[Future[Any]],
    ) -> None:
        self._session, self._bag, self._call, self._earlier = session, bag, call, earlier
        self._left, self._lock = len(earlier), threading.Lock()
        session.delay(1)
        for future in earlier:
            future.add_done_callback(self._on_done)

    def _on_done(self, _: Future[Any]) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        future, function, arguments = self._call
        try:
            results = [_encode_result(one) for one in self._earlier]
            command = self._bag.encoder.command(function, arguments, results)
            if not future.cancelled():
                self._bag.add(future, command)
        except (Exception, CancelledError) as error:
            if not future.cancelled():
                future.set_exception(error)
        finally:
            self._session.delay(-1)


def _has_failed(future: CallFuture) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)


def _encode_result(future: Future[Any]) -> Sequence[Any]:
    """Return the packed result of a future: that of a call as it arrived."""
    value = future.result()
    return getattr(future, "parts", ()) or dump_named("a result", value)


def shut_down_all() -> None:
    """Wait for the calls of all executors: at the exit of the program. If Ctrl-C ends it, or
    arrives here, end them."""
    _EXIT.set()
    # at a prompt, `last_type` may be of an earlier statement
    interrupted = not hasattr(sys, "ps1") and getattr(sys, "last_type", None) is KeyboardInterrupt
    try:
        _shut_down(list(_OPEN), interrupted)
    except KeyboardInterrupt:
        _shut_down(list(_OPEN), True)


def _shut_down(sessions: Sequence[ExecutorSession], interrupted: bool) -> None:
    for session in sessions if interrupted else ():
        session.interrupt()
    for session in sessions:
        session.shut_down(True)


threading._register_atexit(shut_down_all)  # type: ignore[attr-defined]  # before its pools of threads
