"""Counts under a lock: see ../../doc.go."""

import os
import sys
import threading

import pottery
import redis
import redis_lock

HOST, PORT = os.environ["REDIS"].rsplit(":", 1)
UPDATES = int(os.environ["UPDATES"])
TTL = 10  # seconds
PAUSE = 0.5  # between two tries to take a lock, in seconds


def redis_py(r):
    return r.lock("lock:redis-py", timeout=TTL, sleep=PAUSE)


def pottery_redlock(r):
    return pottery.Redlock(key="counter", masters={r}, auto_release_time=TTL)


def python_redis_lock(r):
    return redis_lock.Lock(r, "python-redis-lock", expire=TTL)


def main():
    make_lock = {"redis-py": redis_py, "pottery": pottery_redlock, "python-redis-lock": python_redis_lock}[sys.argv[1]]
    # python-redis-lock waits for a signal as long as the lock may live.
    r = redis.Redis(HOST, int(PORT), max_connections=2 * UPDATES, socket_timeout=6 * TTL)
    locks = [make_lock(r) for _ in range(UPDATES)]
    failures = []

    def update(lock):
        try:
            if not lock.acquire(blocking=True):
                raise AssertionError("not acquired")
            try:
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
