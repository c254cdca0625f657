"""Locks for redis.asyncio.Redis.

    locks = Locks(redis.asyncio.Redis(port=6380))
    async with locks.lock("report", ttl=30, wait=10) as lock:
        await write(report, fence=lock.fence)
"""
from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections import deque
from contextlib import AsyncContextDecorator
from functools import partial
from typing import Callable

from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError

from lockproxy._lease import ENDED, PAUSE, RELEASED, Grant, Lease, LockLost, LockNotAcquired, Request, bound, is_loss, is_transient, listed, longest_wait, pauses, several

__all__ = ["Lock", "LockLost", "LockNotAcquired", "Locks"]

_background: set[asyncio.Task] = set()  # the loop itself keeps no task alive


def _start(work) -> asyncio.Task:
    task = asyncio.create_task(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


async def _end(task: asyncio.Task) -> None:
    """Cancels a task until it has ended: wait_for of Python 3.11 and before, with which redis-py sends, may overlook it."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=PAUSE)
    if not task.cancelled():
        task.exception()  # nobody waits for it any more


class Locks:
    """Takes locks of a lockproxy, to which client is connected. It belongs to the loop of client. Times are in seconds."""

    def __init__(self, client):
        if hasattr(client, "__enter__"):
            raise TypeError("lockproxy.asyncio.Locks takes a client of redis.asyncio; for a redis.Redis there is lockproxy.Locks")
        self._client = client

    def lock(self, name, ttl: float = 30.0, wait: float = 0.0, *, renew: bool = True, max_hold: float | None = None,
             session: bool = False, on_lost: Callable[[str], object] | None = None, info: str = "",
             shared: bool = False, permits: int | None = None) -> _Attempt:
        """A context manager for async with, for one use at a time, and a decorator, that takes the lock as acquire does. It raises
        LockNotAcquired when somebody else has the lock. When the lock is lost the body is cancelled, and LockLost
        raised in its place."""
        return _Attempt([name], partial(self.acquire, name, ttl, wait, renew=renew, max_hold=max_hold, session=session,
                                      on_lost=on_lost, info=info, shared=shared, permits=permits))

    async def acquire(self, name, ttl: float = 30.0, wait: float = 0.0, *, renew: bool = True,
                      max_hold: float | None = None, session: bool = False,
                      on_lost: Callable[[str], object] | None = None, info: str = "",
                      shared: bool = False, permits: int | None = None) -> Lock | None:
        """Takes the lock for ttl and renews it until it is released, for max_hold at most (an hour); renew=False
        leaves it to end by itself. Who wants it while another has it waits in line for as long as wait says, and
        gets None if it is still not free. Who is cancelled meanwhile leaves the line.

        session=True binds the lock to a connection of its own: it is free milliseconds after this process has died.
        on_lost, a function or a coroutine function, is called once, with the reason, when the lock is lost; info is
        shown by LOCKCTL. shared=True is for who only reads: others may read at the same time, and nobody has the lock for
        itself. permits=10 is for who shares it with nine others at most, who say so as well. All proxies must know
        either."""
        return await self._take([name], ttl, wait, renew, max_hold, session, on_lost, info, shared, permits)

    def lock_all(self, names, ttl: float = 30.0, wait: float = 0.0, *, renew: bool = True, max_hold: float | None = None,
                 session: bool = False, on_lost: Callable[[str], object] | None = None, info: str = "",
                 shared: bool = False) -> _Attempt:
        """The same as lock, for several names: it takes them as acquire_all does."""
        names = several(names)
        return _Attempt(names, partial(self.acquire_all, names, ttl, wait, renew=renew, max_hold=max_hold, session=session,
                                       on_lost=on_lost, info=info, shared=shared))

    async def acquire_all(self, names, ttl: float = 30.0, wait: float = 0.0, *, renew: bool = True,
                          max_hold: float | None = None, session: bool = False,
                          on_lost: Callable[[str], object] | None = None, info: str = "",
                          shared: bool = False) -> Lock | None:
        """Takes up to 64 names at once, all of them or none: the lock has the fence of each name in fences. What waits
        holds none of them, so that their order does not matter. They are renewed and released together, and the lock
        is lost when one of them is. All proxies must know LOCKALL."""
        return await self._take(several(names), ttl, wait, renew, max_hold, session, on_lost, info, shared, None)

    async def _take(self, names: list, ttl, wait, renew, max_hold, session, on_lost, info, shared, permits) -> Lock | None:
        end, piece = time.monotonic() + wait, longest_wait(self._client)
        line = _Own(self._client.connection_pool) if session else _Pooled(self._client)
        request, waits = Request(names, ttl, session, max_hold, info, shared, permits), pauses(end)
        lock, asking = None, None
        try:
            while lock is None:
                asked = time.monotonic()
                try:
                    asking = _start(line.execute(*request.lock(min(piece, max(0.0, end - asked)))))
                    await asyncio.wait({asking})
                    reply = asking.result()
                    granted = None if reply is None else request.granted(reply)
                except RedisError as e:
                    if not is_transient(e) or time.monotonic() >= end:
                        raise
                    await asyncio.sleep(next(waits))
                    continue
                waits = pauses(end)
                if granted is not None:
                    validity, fences = granted
                    lease = Lease(ttl, asked, validity, renew, max_hold, session)
                    if time.monotonic() < lease.until:
                        lock = Lock(self._client, line, request, fences, lease, on_lost)
                        break
                    await _give_back(self._client, request)  # it was over when it arrived
                    request = Request(names, ttl, session, max_hold, info, shared, permits)
                if time.monotonic() >= end:
                    break
        except BaseException:  # it may be granted, and the reply lost
            await asyncio.shield(_start(self._give_up(asking, line, request)))
            raise
        if lock is None:
            await line.close()
        return lock

    async def _give_up(self, asking: asyncio.Task | None, line, request: Request) -> None:
        try:
            if asking:
                await _end(asking)
            await line.close()
        finally:  # also at the end of the loop, which cancels all tasks once
            await _give_back(self._client, request)


class _Attempt(AsyncContextDecorator):
    def __init__(self, names: list, acquire):
        self._names, self._acquire = names, acquire

    def _recreate_cm(self):  # each call of a decorated function takes the lock anew
        return _Attempt(self._names, self._acquire)

    async def __aenter__(self) -> Lock:
        self._lock = await self._acquire()
        if self._lock is None:
            raise LockNotAcquired(f"somebody else has the lock {listed(self._names)}")
        return await self._lock.__aenter__()

    async def __aexit__(self, *raised) -> None:
        await self._lock.__aexit__(*raised)


class Lock(Grant):
    """A lock that we have until it is released or lost. fence is larger with every new holder of the name; of several
    names each has its own, in fences."""

    def __init__(self, client, line, request: Request, fences: dict, lease: Lease, on_lost):
        super().__init__(request, fences)
        self._client, self._line, self._request, self._lease, self._on_lost = client, line, request, lease, on_lost
        self._released = False
        self._body: asyncio.Task | None = None  # is cancelled when the lock is lost
        self._cut = False  # we have cancelled it
        line.watch()
        self._keeper = _start(self._keep())

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

    async def release(self) -> None:
        """Gives the lock back, also if the caller is cancelled meanwhile. It raises LockLost if the lock was lost
        before. A second call does nothing."""
        if not self._released:
            self._released = True
            released = _start(self._release())
            released.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(released)

    async def _release(self) -> None:
        try:
            if self._lease.reason is None:
                await _end(self._keeper)
            if self.lost:
                await _give_back(self._client, self._request, once=True)
                self.check()
            self._lease.release()
            await self._unlock()
        except asyncio.CancelledError:  # by the end of the loop, which cancels all tasks once
            await _give_back(self._client, self._request)
            raise
        finally:
            await self._line.close()

    async def _unlock(self) -> None:
        send, waits = self._line.execute, pauses(self._lease.until)
        while True:
            try:
                await send(*self._request.unlock())
                return
            except RedisError as e:
                if is_loss(e):
                    raise LockLost(f"the lock {listed(self.names)} is lost: {e}") from None
                if not is_transient(e) or time.monotonic() >= self._lease.until:
                    raise
            send = self._client.execute_command  # a connection of its own has ended, and with it the lock
            await asyncio.sleep(next(waits))

    async def __aenter__(self) -> Lock:
        self._body = asyncio.current_task()
        self._cancelling = self._body.cancelling() if hasattr(self._body, "cancelling") else 0  # since Python 3.11
        return self

    async def __aexit__(self, kind, *_) -> None:
        body, self._body = self._body, None
        ours = False
        if self._cut:
            left = body.uncancel() if hasattr(body, "uncancel") else 0
            ours = kind is asyncio.CancelledError and left <= self._cancelling
        try:
            await self.release()
        except RedisError:
            if kind is None or ours:
                raise

    async def _keep(self) -> None:
        """Renews the lock until it is released or lost."""
        lease = self._lease
        while lease.reason is None and not self._released:
            try:
                answer = await self._line.wait(lease.wake_at() - time.monotonic())
                if answer is not None:
                    lease.answered(answer, time.monotonic())
                elif lease.next(time.monotonic()):
                    await self._line.begin(self._request.renew(self.fences))
            except Exception as e:  # it could not even be sent
                lease.answered(e, time.monotonic())
        if lease.reason is None:
            return
        if self._body:
            self._cut = True
            self._body.cancel()
        _start(self._line.close())
        if self._on_lost and inspect.isawaitable(told := self._on_lost(lease.reason)):
            await told


async def _give_back(client, request: Request, once: bool = False) -> None:
    """Sends UNLOCK until it is answered, in the background if that takes long."""
    end = time.monotonic() + (0 if once else request.ttl)
    waits = pauses(end)

    async def unlock():
        while True:
            try:
                await client.execute_command(*request.unlock())
                return
            except RedisError as e:
                if not is_transient(e) or time.monotonic() >= end:
                    return
            await asyncio.sleep(next(waits))

    await asyncio.wait({_start(unlock())}, timeout=1.0)


class _Pooled:
    """Commands over connections of the client's pool."""

    def __init__(self, client):
        self.execute = client.execute_command
        self._asking: asyncio.Task | None = None

    def watch(self) -> None:
        pass

    async def begin(self, command) -> None:
        """Sends a command; wait returns its answer."""
        self._asking = _start(self.execute(*command))

    async def wait(self, seconds: float):
        """An answer, or the error in its place; None when the time is over."""
        if self._asking is None:
            return await asyncio.sleep(seconds)
        await asyncio.wait({self._asking}, timeout=max(0.0, seconds))
        if not self._asking.done():
            return None
        answer, self._asking = self._asking, None
        return answer.exception() or answer.result()

    async def close(self) -> None:
        if self._asking:
            await _end(self._asking)


class _Own:
    """Commands over a connection that is made for one lock, with the settings of a pool."""

    def __init__(self, pool):
        self._connection = pool.connection_class(**pool.connection_kwargs)
        bound.add(self)
        self._reader: asyncio.Task | None = None
        self._due: deque[asyncio.Future] = deque()  # answers that are still to come
        self._asking: asyncio.Future | None = None

    def fileno(self) -> int:
        writer = self._connection._writer
        return writer.get_extra_info("socket").fileno() if writer else -1

    async def execute(self, *command):
        if self._reader is None:
            await self._connection.send_command(*command, check_health=False)
            return await self._connection.read_response()
        answer = await self._send(command)
        try:
            return await asyncio.wait_for(answer, self._connection.socket_timeout)
        except asyncio.TimeoutError:
            raise TimeoutError("no answer on the lock's own connection") from None

    async def _send(self, command) -> asyncio.Future:
        if self._reader.done():
            raise ConnectionError("the lock's own connection has ended")
        answer = asyncio.get_running_loop().create_future()
        self._due.append(answer)
        await self._connection.send_command(*command, check_health=False)  # which would connect again unseen
        return answer

    def watch(self) -> None:
        """Is called when the lock is granted: from now on the end of the connection is its loss."""
        self._reader = _start(self._read())

    async def _read(self) -> Exception:
        """Reads answers until the connection ends, and returns why."""
        while True:
            try:
                answer = await self._connection.read_response(timeout=math.inf, disconnect_on_error=False)
            except ResponseError as e:
                answer = e
            except Exception as e:
                for due in self._due:
                    if not due.done():
                        due.set_exception(e)
                        due.exception()  # nobody may wait for it
                return e
            if not self._due:
                return ConnectionError("an answer that nobody asked for")
            due = self._due.popleft()
            if due.done():
                continue  # nobody waits for it any more
            if isinstance(answer, Exception):
                due.set_exception(answer)
            else:
                due.set_result(answer)

    async def begin(self, command) -> None:
        self._asking = await self._send(command)

    async def wait(self, seconds: float):
        awaited = {self._reader, self._asking} - {None}
        await asyncio.wait(awaited, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
        if self._asking and self._asking.done():
            answer, self._asking = self._asking, None
            return answer.exception() or answer.result()
        return self._reader.result() if self._reader.done() else None

    async def close(self) -> None:
        bound.discard(self)
        if self._reader:
            await _end(self._reader)
        await self._connection.disconnect(nowait=True)
