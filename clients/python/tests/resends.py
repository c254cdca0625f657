"""Takes and gives back a lock over and over, and says when: resends.py sync|asyncio"""
import asyncio
import os
import sys
import time

import redis
import redis.asyncio

import lockproxy
import lockproxy.asyncio

host, port = os.environ["PROXY"].split(":")
options = {"host": host, "port": int(port), "socket_timeout": 0.2}
end = time.monotonic() + float(os.environ["SECONDS"])


def say(*what):
    print(os.environ["WHO"], *what, flush=True)


def run():
    locks = lockproxy.Locks(redis.Redis(**options))
    while time.monotonic() < end:
        with locks.lock("job", ttl=30, wait=20) as lock:
            say("locked", lock.fence)
            say("unlocking")


async def run_async():
    locks = lockproxy.asyncio.Locks(redis.asyncio.Redis(**options))
    while time.monotonic() < end:
        async with locks.lock("job", ttl=30, wait=20) as lock:
            say("locked", lock.fence)
            say("unlocking")


run() if sys.argv[1] == "sync" else asyncio.run(run_async())
