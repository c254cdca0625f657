"""Distributed locks of lockproxy, on the redis-py client that an application has already.

    locks = Locks(redis.Redis(port=6380))
    with locks.lock("report", ttl=30, wait=10) as lock:
        write(report, fence=lock.fence)

lockproxy.asyncio has the same for redis.asyncio.
"""
from lockproxy._lease import LockLost, LockNotAcquired
from lockproxy._sync import Lock, Locks

__all__ = ["Lock", "LockLost", "LockNotAcquired", "Locks"]
