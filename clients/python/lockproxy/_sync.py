"""Locks for redis.Redis."""
from __future__ import annotations

import os
import queue
import selectors
import socket
import threading
import time
from contextlib import ContextDecorator, suppress
from functools import partial
from typing import Callable

from redis.exceptions import ConnectionError, RedisError, ResponseError

from lockproxy._lease import ENDED, RELEASED, Grant, Lease, LockLost, LockNotAcquired, Request, bound, is_loss, is_transient, listed, longest_wait, pauses, several

_STOP = object()


class Locks:
    """Takes locks of a lockproxy, to which client is connected. It is safe for threads, as client is. Times are
    in seconds."""

    def __init__(self, client):
        if hasattr(client, "__aenter__"):
            raise TypeError("lockproxy.Locks takes a redis.Redis; for one of redis.asyncio there is lockproxy.asyncio.Locks")
        self._client = client

    def lock(self, name, ttl: float = 30.0, wait: float = 0.0, *, renew: bool = True, max_hold: float | None = None,
             session: bool = False, on_lost: Callable[[str], object] | None = None, info: str = "",
             shared: bool = False, permits: int | None = None) -> _Attempt:
        """A context manager, for one use at a time, and a decorator, that takes the lock as acquire does. It raises
        LockNotAcquired when somebody else has the lock; at its end LockLost, if the lock was lost before and the body
        has raised nothing."""
        return _Attempt([name], partial(self.acquire, name, ttl, wait, renew=renew, max_hold=max_hold, session=session,
                                      on_lost=on_lost, info=info, shared=shared, permits=permits))

    def acquire(self, name, ttl: float = 30.0, wait: float = 0.0, *, renew: bool = True, max_hold: float | None = None,
                session: bool = False, on_lost: Callable[[str], object] | None = None, info: str = "",
                shared: bool = False, permits: int | None = None) -> Lock | None:
        """Takes the lock for ttl and renews it until it is released, for max_hold at most (an hour); renew=False
        leaves it to end by itself. Who wants it while another has it waits in line for as long as wait says, and
        gets None if it is still not free.

        session=True binds the lock to a connection of its own: it is free milliseconds after this process has died.
        on_lost is called once, with the reason, in a thread of its own, when the lock is lost; info is shown by LOCKCTL.
        shared=True is for who only reads: others may read at the same time, and nobody has the lock for itself.
        permits=10 is for who shares it with nine others at most, who say so as well. All proxies must know either."""
        return self._take([name], ttl, wait, renew, max_hold, session, on_lost, info, shared, permits)

    def lock_all(self, names, ttl: float = 30.0, wait: float = 0.0, *, renew: bool = True, max_hold: float | None = None,
                 session: bool = False, on_lost: Callable[[str], object] | None = None, info: str = "",
                 shared: bool = False) -> _Attempt:
        """The same as lock, for several names: it takes them as acquire_all does."""
        names = several(names)
        return _Attempt(names, partial(self.acquire_all, names, ttl, wait, renew=renew, max_hold=max_hold, session=session,
                                       on_lost=on_lost, info=info, shared=shared))

    def acquire_all(self, names, ttl: float = 30.0, wait: float = 0.0, *, renew: bool = True,
                    max_hold: float | None = None, session: bool = False,
                    on_lost: Callable[[str], object] | None = None, info: str = "",
                    shared: bool = False) -> Lock | None:
        """Takes up to 64 names at once, all of them or none: the lock has the fence of each name in fences. What waits
        holds none of them, so that their order does not matter. They are renewed and released together, and the lock
        is lost when one of them is. All proxies must know LOCKALL."""
        return self._take(several(names), ttl, wait, renew, max_hold, session, on_lost, info, shared, None)

    def _take(self, names: list, ttl, wait, renew, max_hold, session, on_lost, info, shared, permits) -> Lock | None:
        end, piece = time.monotonic() + wait, longest_wait(self._client)
        line = _Own(self._client.connection_pool) if session else _Pooled(self._client)
        request, waits = Request(names, ttl, session, max_hold, info, shared, permits), pauses(end)
        lock = None
        try:
            while lock is None:
                asked = time.monotonic()
                try:
                    reply = line.execute(*request.lock(min(piece, max(0.0, end - asked))))
                    granted = None if reply is None else request.granted(reply)
                except RedisError as e:
                    if not is_transient(e) or time.monotonic() >= end:
                        raise
                    time.sleep(next(waits))
                    continue
                waits = pauses(end)
                if granted is not None:
                    validity, fences = granted
                    lease = Lease(ttl, asked, validity, renew, max_hold, session)
                    if time.monotonic() < lease.until:
                        lock = Lock(self._client, line, request, fences, lease, on_lost)
                        lock._start()
                        break
                    _give_back(self._client, request)  # it was over when it arrived
                    request = Request(names, ttl, session, max_hold, info, shared, permits)
                if time.monotonic() >= end:
                    break
        except BaseException:  # it may be granted, and the reply lost
            if lock is not None:
                lock._abandon()
            line.close()
            _give_back(self._client, request)
            raise
        if lock is None:
            line.close()
        return lock


class _Attempt(ContextDecorator):
    def __init__(self, names: list, acquire):
        self._names, self._acquire = names, acquire

    def _recreate_cm(self):  # each call of a decorated function takes the lock anew
        return _Attempt(self._names, self._acquire)

    def __enter__(self) -> Lock:
        self._lock = self._acquire()
        if self._lock is None:
            raise LockNotAcquired(f"somebody else has the lock {listed(self._names)}")
        return self._lock

    def __exit__(self, *raised) -> None:
        self._lock.__exit__(*raised)


class Lock(Grant):
    """A lock that we have until it is released or lost. fence is larger with every new holder of the name; of several
    names each has its own, in fences. Any thread may use it; a forked child has no part in it: there release does nothing."""

    def __init__(self, client, line, request: Request, fences: dict, lease: Lease, on_lost):
        super().__init__(request, fences)
        self._client, self._line, self._request, self._lease, self._on_lost = client, line, request, lease, on_lost
        self._pid, self._released = os.getpid(), threading.Lock()
        self._keeper = threading.Thread(target=self._keep, name=f"lockproxy {listed(self.names)}", daemon=True)

    def _start(self) -> None:
        self._line.watch()
        self._keeper.start()

    def _abandon(self) -> None:
        """Is called when _start was interrupted: nobody has got the lock, so nobody is told of its end."""
        self._on_lost = None
        self._line.wake()

    @property
    def valid_until(self) -> float:
        """Until when, of time.monotonic(), it is safe to work; later after each renewal."""
        return self._lease.until

    @property
    def remaining(self) -> float:
        """For how many seconds it is safe to work, if the lock is not renewed; 0 when it was lost or released."""
        return 0.0 if self._lease.reason else max(0.0, self._lease.until - time.monotonic())

    @property
    def lost(self) -> bool:
        return self.remaining == 0.0 and self._lease.reason != RELEASED

    def check(self) -> None:
        """Raises LockLost if the lock is lost, or was released."""
        if self.remaining == 0.0:
            raise LockLost(f"the lock {listed(self.names)} is lost: {self._lease.reason or ENDED}")

    def release(self) -> None:
        """Gives the lock back. It raises LockLost if the lock was lost before. A second call does nothing."""
        if os.getpid() != self._pid or not self._released.acquire(blocking=False):
            return
        try:
            self._line.wake()
            self._keeper.join()
            if self.lost:
                _give_back(self._client, self._request, once=True)
                self.check()
            self._lease.release()
            self._unlock()
        except BaseException as e:
            if not isinstance(e, RedisError):  # we were interrupted
                _give_back(self._client, self._request)
            raise
        finally:
            self._line.close()

    def _unlock(self) -> None:
        send, waits = self._line.execute, pauses(self._lease.until)
        while True:
            try:
                send(*self._request.unlock())
                return
            except RedisError as e:
                if is_loss(e):
                    raise LockLost(f"the lock {listed(self.names)} is lost: {e}") from None
                if not is_transient(e) or time.monotonic() >= self._lease.until:
                    raise
            send = self._client.execute_command  # a connection of its own has ended, and with it the lock
            time.sleep(next(waits))

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            self.release()
        except RedisError:
            if kind is None:
                raise

    def _keep(self) -> None:
        """Renews the lock until it is released or lost."""
        lease = self._lease
        while lease.reason is None:
            try:
                answer = self._line.wait(lease.wake_at() - time.monotonic())
                if answer is _STOP:
                    return
                if answer is not None:
                    lease.answered(answer, time.monotonic())
                elif lease.next(time.monotonic()):
                    self._line.begin(self._request.renew(self.fences))
            except Exception as e:  # it could not even be sent
                lease.answered(e, time.monotonic())
        self._line.close()
        if self._on_lost:  # in a thread of its own: it may wait for the work, whose release waits for this one
            threading.Thread(target=self._on_lost, args=(lease.reason,), name="lockproxy on_lost", daemon=True).start()


def _give_back(client, request: Request, once: bool = False) -> None:
    """Sends UNLOCK until it is answered, in the background if that takes long."""
    end = time.monotonic() + (0 if once else request.ttl)
    waits = pauses(end)

    def unlock():
        while True:
            try:
                client.execute_command(*request.unlock())
                return
            except RedisError as e:
                if not is_transient(e) or time.monotonic() >= end:
                    return
            time.sleep(next(waits))

    thread = threading.Thread(target=unlock, name="lockproxy UNLOCK", daemon=True)
    thread.start()
    thread.join(1.0)


class _Pooled:
    """Commands over connections of the client's pool."""

    def __init__(self, client):
        self.execute = client.execute_command
        self._events: queue.SimpleQueue = queue.SimpleQueue()

    def watch(self) -> None:
        pass

    def begin(self, command) -> None:
        """Sends a command; wait returns its answer. It has a thread, so that one which hangs delays nothing."""
        threading.Thread(target=self._run, args=(command,), name="lockproxy RENEW", daemon=True).start()

    def _run(self, command) -> None:
        try:
            self._events.put(self.execute(*command))
        except Exception as e:
            self._events.put(e)

    def wait(self, seconds: float):
        """An answer, or the error in its place; None when the time is over, _STOP after wake."""
        try:
            return self._events.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None

    def wake(self) -> None:
        self._events.put(_STOP)

    def close(self) -> None:
        pass


class _Own:
    """Commands over a connection that is made for one lock, with the settings of a pool. One thread uses it at a
    time, but for wake and close."""

    def __init__(self, pool):
        self._connection = pool.connection_class(**pool.connection_kwargs)
        bound.add(self)
        self._selector = None
        self._owed = 0  # answers that are still to come

    def fileno(self) -> int:
        sock = self._connection._sock
        return sock.fileno() if sock else -1

    def execute(self, *command):
        self.begin(command)
        try:
            for _ in range(self._owed - 1):
                with suppress(ResponseError):
                    self._connection.read_response()
            return self._connection.read_response()
        finally:
            self._owed = 0  # after another error than a reply redis-py has closed the connection

    def begin(self, command) -> None:
        self._connection.send_command(*command, check_health=False)  # which would connect again unseen
        self._owed += 1

    def watch(self) -> None:
        """Is called when the lock is granted: from now on the end of the connection is its loss."""
        self._awake, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._selector.register(self._connection._sock, selectors.EVENT_READ)

    def wait(self, seconds: float):
        end = time.monotonic() + seconds
        while ready := self._selector.select(max(0.0, end - time.monotonic())):
            if any(key.fileobj is self._awake for key, _ in ready):
                return _STOP
            try:
                if not self._connection.can_read(0):
                    continue  # it was TLS's own
                if self._owed == 0:
                    raise ConnectionError("an answer that nobody asked for")
                self._owed -= 1
                return self._connection.read_response()
            except RedisError as e:
                return e
        return None

    def wake(self) -> None:
        with suppress(OSError, AttributeError):  # it may not have been watched yet
            self._waker.send(b"!")

    def close(self) -> None:
        bound.discard(self)
        self._connection.disconnect()
        if self._selector:
            self._selector.close()
            self._awake.close()
            self._waker.close()
