"""Takes the lock NAME and keeps it: holder.py sync|asyncio 2|3 NAME TTL [session] [fork|fork-asking]"""
import asyncio
import os
import sys
import time

import redis
import redis.asyncio
from world import proxy

import lockproxy
import lockproxy.asyncio

kind, protocol, name, ttl, *more = sys.argv[1:]
options = {"ttl": float(ttl), "wait": 60.0, "session": "session" in more}


def moved(lock, seen=[0.0]):
    """Says the end of the validity when it has moved, and ends when the lock is lost."""
    lock.check()
    if lock.valid_until != seen[0]:
        seen[0] = lock.valid_until
        print(seen[0], flush=True)


def fork(when="fork"):
    """Leaves a child behind, which lives until nobody writes to its standard input any more."""
    if when in more and os.fork() == 0:
        sys.stdin.read()
        os._exit(0)


class Asking(redis.Connection):
    """Forks when LOCK is on its way."""

    def send_command(self, *command, **options):
        super().send_command(*command, **options)
        if command[0] == "LOCK":
            fork("fork-asking")


class AskingAsync(redis.asyncio.Connection):
    async def send_command(self, *command, **options):
        await super().send_command(*command, **options)
        if command[0] == "LOCK":
            fork("fork-asking")


def keep():
    client = redis.Redis(connection_pool=redis.ConnectionPool(connection_class=Asking, **proxy(), protocol=int(protocol)))
    with lockproxy.Locks(client).lock(name, **options) as lock:
        fork()
        print(lock.fence, flush=True)
        while True:
            moved(lock)
            time.sleep(0.01)


async def keep_async():
    client = redis.asyncio.Redis(connection_pool=redis.asyncio.ConnectionPool(connection_class=AskingAsync, **proxy(), protocol=int(protocol)))
    async with lockproxy.asyncio.Locks(client).lock(name, **options) as lock:
        fork()
        print(lock.fence, flush=True)
        while True:
            moved(lock)
            await asyncio.sleep(0.01)


keep() if kind == "sync" else asyncio.run(keep_async())
