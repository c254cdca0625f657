"""What both clients share: what is sent, what an answer means, and when a lock is over."""
from __future__ import annotations

import math
import os
import random
import secrets
import time
import weakref
from collections.abc import Iterator

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectionError,
    LockError,
    LockNotOwnedError,
    ResponseError,
    TimeoutError,
)

PAUSE = 0.1  # s between two tries
MAX_PAUSE = 0.8  # s, and up to a quarter more, after some failures
MAX_HOLD = 3600.0  # s, as lockproxy's own
ENDED = "its validity ended"
RELEASED = "it was released"

# For how many seconds a lock with session counts as held after an answer: less than a proxy takes to notice that a
# client's host has vanished, after which it gives the lock away.
SILENCE = 12.0


class LockNotAcquired(LockError):
    """Somebody else has the lock, and still had it when the wait was over."""


class LockLost(LockNotOwnedError):
    """The lock was lost before it was released: somebody else may have it."""


def longest_wait(client) -> float:
    """For how many seconds a LOCK may wait at the proxy: half of the client's read timeout, so that
    waiting never looks like a lost reply."""
    timeout = client.connection_pool.connection_kwargs.get("socket_timeout", 5.0)
    return min(5.0, timeout / 2) if timeout else 5.0


def pauses(until: float = math.inf) -> Iterator[float]:
    """For how many seconds to wait before a command that failed is sent again, each time longer, up to a second, and not beyond that
    time: in an outage there may be many of these, and each keeps the lock nodes busy. Clients that failed together do not come back
    together."""
    pause = PAUSE
    while True:
        yield max(0.0, min(pause * random.uniform(1, 1.25), until - time.monotonic()))
        pause = min(2 * pause, MAX_PAUSE)


def is_transient(error: Exception) -> bool:
    """Whether the same command may be answered when it is sent again."""
    if isinstance(error, (AuthenticationError, AuthorizationError)):  # redis-py has them as ConnectionErrors
        return False
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    return str(error).startswith(("NOQUORUM", "DRAINING", "UPSTREAMDOWN"))


def is_loss(error: Exception) -> bool:
    return isinstance(error, ResponseError) and str(error).startswith(("LOCKLOST", "NOTOWNER"))


def milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)


def several(names) -> list:
    if isinstance(names, (str, bytes)):
        raise TypeError(f"{names!r} is one name, not several")
    return list(names)


def listed(names) -> str:
    return ", ".join(map(repr, names))


class Request:
    """One acquisition, of one name or several. Its owner is new, and the id of its LOCK and UNLOCK as well, so that either
    counts once, however often it is sent."""

    def __init__(self, names: list, ttl: float, session: bool, max_hold: float | None, info: str, shared: bool = False,
                 permits: int | None = None):
        self.names, self.ttl, self.owner = names, ttl, secrets.token_hex(16)
        self._shared = ["SHARED"] if shared or permits is not None else []  # of RENEW and UNLOCK
        self._lock = [*self._words("LOCK"), milliseconds(ttl), "OWNER", self.owner, "REQ", self.owner]
        if shared:
            self._lock.append("SHARED")
        if permits is not None:
            self._lock += ["PERMITS", permits]
        if info:
            self._lock += ["INFO", info]
        if session:
            self._lock += ["SESSION", "ONLOSS", "CLOSE"]
            if max_hold is not None and max_hold != math.inf:  # the proxy has a limit of its own
                self._lock += ["MAXHOLD", milliseconds(max_hold)]

    def _words(self, verb: str) -> list:
        return [verb, *self.names] if len(self.names) == 1 else [verb + "ALL", len(self.names), *self.names]

    def lock(self, wait: float) -> list:
        return self._lock + (["WAIT", milliseconds(wait)] if wait > 0 else [])

    def granted(self, reply) -> tuple[int, dict]:
        """The validity in the reply to LOCK, and the fence of each name. An answer to another command is a ConnectionError: a
        signal handler that raises may leave one that is still to come on a connection of redis-py's pool."""
        if not isinstance(reply, list) or reply[1] not in (self.owner, self.owner.encode()):
            raise ConnectionError("an answer to another command")
        if len(self.names) == 1:
            return reply[2], {self.names[0]: int(reply[0])}
        return reply[0], {name: int(fence) for name, (_, fence, _) in zip(self.names, reply[2:])}

    def renew(self, fences: dict) -> list:
        fence = ["FENCE", *fences.values()] if len(self.names) == 1 else []  # of several each has its own
        return [*self._words("RENEW"), milliseconds(self.ttl), self.owner, *self._shared, *fence]

    def unlock(self) -> list:
        return [*self._words("UNLOCK"), self.owner, *self._shared, "REQ", self.owner]


class Grant:
    """What a lock is of. name and fence are those of the only name; with several they raise ValueError, and fences has the
    fence of each name."""

    def __init__(self, request: Request, fences: dict):
        self.names, self.owner, self.fences = request.names, request.owner, fences

    @property
    def name(self):
        return self._only(self.names)

    @property
    def fence(self) -> int:
        """It is larger with every new holder of the name."""
        return self._only(self.fences.values())

    @staticmethod
    def _only(values):
        if len(values) != 1:
            raise ValueError("a lock of several names has names and fences")
        return next(iter(values))


class Lease:
    """When a lock is to be renewed, and when it is lost. It has neither a clock nor a connection: times are
    those of time.monotonic(), and whoever keeps the lock calls next() at wake_at and answered() with each
    answer to RENEW. reason says why the lock is lost, None while it is not."""

    def __init__(self, ttl: float, asked: float, validity: int, renew: bool, max_hold: float | None, session: bool):
        self.reason: str | None = None
        self._ttl, self._session, self._asked = ttl, session, None
        self._renews = renew or session
        self._renews_until = asked + (MAX_HOLD if max_hold is None else max_hold)
        self._extend(asked, validity)

    def _extend(self, asked: float, validity: int) -> None:
        longest = SILENCE if self._session else math.inf
        self.until, self._why, self._pauses = asked + min(validity / 1000, longest), ENDED, pauses()
        self._renew_at = asked + min(self._ttl, longest) / 3 if self._renews else math.inf
        if self._renews and self._renew_at > self._renews_until:
            self._renew_at, self._why = math.inf, ENDED + ", it was held for max_hold"

    def wake_at(self) -> float:
        return self.until if self._asked is not None else min(self.until, self._renew_at)

    def next(self, now: float) -> bool:
        """Whether RENEW is to be sent now. The lock may be lost afterwards."""
        if now >= self.until:
            self.reason = self._why
        elif self._asked is None and now >= self._renew_at:
            self._asked = now
            return True
        return False

    def release(self) -> None:
        """Is called when the lock is given back: it is not safe to work any more."""
        self.reason = self.reason or RELEASED

    def answered(self, answer, now: float) -> None:
        """The answer to RENEW, or the error; or, of a session, the end of its connection."""
        asked, self._asked = self._asked, None
        if not isinstance(answer, Exception):
            if asked is not None and now < self.until:
                self._extend(asked, answer)
        elif is_loss(answer):
            self.reason = str(answer)
        elif self._session and not isinstance(answer, ResponseError):
            self.reason = f"its connection ended: {answer}"
        else:
            self._renew_at = now + min(next(self._pauses), max(PAUSE, (self.until - now) / 2))  # while the lease can be saved
            self._why = f"{ENDED}, it could not be renewed: {answer}"


# Connections that locks are bound to, or are about to be. A forked child must not keep them open when its parent is killed.
bound: weakref.WeakSet = weakref.WeakSet()


def _let_go() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for connection in list(bound):
        if (fd := connection.fileno()) >= 0:
            os.dup2(nowhere, fd, inheritable=False)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
