"""Counts under a lock: see ../../doc.go."""

import itertools
import os
import sys
import threading
import time
import uuid

import pottery
import redis
import redis_lock

HOST, PORT = os.environ["REDIS"].rsplit(":", 1)
UPDATES = int(os.environ["UPDATES"])
TTL = int(os.environ.get("LEASE", 10))  # seconds
HOLD = "HOLD" in os.environ
PAUSE = 0.5  # between two tries to take a lock, in seconds


def redis_py(r):
    return r.lock("lock:redis-py", timeout=TTL, sleep=PAUSE)


def pottery_redlock(r):
    return pottery.Redlock(key="counter", masters={r}, auto_release_time=TTL)


def python_redis_lock(r):
    return redis_lock.Lock(r, "python-redis-lock", expire=TTL)


def decided(call):
    """Calls with 1, 2, ... until enough lock nodes answer: these programs are written by hand, so they try again."""
    for attempt in itertools.count(1):
        try:
            return call(attempt)
        except redis.ResponseError as e:
            if not str(e).startswith("NOQUORUM"):
                raise
        time.sleep(0.05)


class Watching:
    """SET NX PX, and a release that compares in the client: WATCH, GET, MULTI, DEL, EXEC."""

    name = "lock:watched"

    def __init__(self, r):
        self.r, self.token = r, uuid.uuid4().hex.encode()

    def acquire(self, blocking):
        while not decided(lambda _: self.r.set(self.name, self.token, nx=True, px=1000 * TTL)):
            time.sleep(PAUSE)
        return True

    def release(self):
        decided(self.released)

    def released(self, attempt):
        with self.r.pipeline(transaction=True) as pipe:
            pipe.watch(self.name)
            if pipe.get(self.name) != self.token:
                if attempt > 1:  # the one before was done
                    return
                raise AssertionError("another has it")
            pipe.multi()
            pipe.delete(self.name)
            if pipe.execute() != [1]:
                raise AssertionError("it was not released")


class Deadlines:
    """SETNX with the time when the lock ends as its value; GET and GETSET where that is over; GET and DEL."""

    name = "lock:deadline"

    def __init__(self, r):
        self.r, self.until = r, 0.0

    def acquire(self, blocking):
        while not decided(self.tried):
            time.sleep(PAUSE)
        return True

    def tried(self, _):
        now = time.time()
        until = now + TTL
        taken = self.r.setnx(self.name, until)
        # GETSET of a lock that is free by now could put an earlier time in place of the next holder's.
        if not taken and float(self.r.get(self.name) or until) < now:
            taken = float(self.r.getset(self.name, until) or 1) < now
        if taken:
            self.until = until
        return taken

    def release(self):
        decided(self.released)

    def released(self, attempt):
        if (float(self.r.get(self.name) or 1) < self.until or not self.r.delete(self.name)) and attempt == 1:
            raise AssertionError("it was over before it was released")


def main():
    make_lock = {"redis-py": redis_py, "pottery": pottery_redlock, "python-redis-lock": python_redis_lock, "watch": Watching, "deadlines": Deadlines}[sys.argv[1]]
    # python-redis-lock waits for a signal as long as the lock may live.
    r = redis.Redis(HOST, int(PORT), max_connections=2 * UPDATES, socket_timeout=6 * TTL)
    locks = [make_lock(r) for _ in range(UPDATES)]
    failures = []

    def update(lock):
        try:
            if not lock.acquire(blocking=True):
                raise AssertionError("not acquired")
            try:
                if HOLD:
                    print("held", flush=True)
                    sys.stdin.readline()
                r.set("counter", int(r.get("counter")) + 1)
            finally:
                lock.release()
        except Exception as e:
            failures.append(repr(e))

    threads = [threading.Thread(target=update, args=(lock,)) for lock in locks]
    r.ping()
    print("ready", flush=True)
    sys.stdin.readline()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for f in failures:
        print("failed:", f)
    print("done", UPDATES - len(failures), flush=True)


main()
