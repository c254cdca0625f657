"""Sums up what was sold, once a night. It may be started on every machine."""
import datetime
import os
import sqlite3
import sys

import redis

from lockproxy import LockNotAcquired, Locks


def sum_up(db, night, fence):
    (last,) = db.execute("SELECT night FROM summary").fetchone()
    if last >= night:
        return  # another machine has done it
    (total,) = db.execute("SELECT sum(amount) FROM sales").fetchone()  # takes long
    with db:
        db.execute("UPDATE summary SET total = ?, night = ?, fence = ? WHERE fence < ?", (total, night, fence, fence))


def main():
    db, night = sqlite3.connect(os.environ["DATABASE"]), datetime.date.today().isoformat()
    if "LOCK_FENCE" in os.environ:  # lockproxy run has the lock, and ends us when it is lost
        sum_up(db, night, int(os.environ["LOCK_FENCE"]))
        return
    locks = Locks(redis.Redis.from_url(os.environ["LOCKPROXY_URL"]))
    try:
        with locks.lock("nightly", session=True, on_lost=lambda reason: os._exit(70)) as lock:
            sum_up(db, night, lock.fence)
    except LockNotAcquired:
        sys.exit(75)


if __name__ == "__main__":
    main()
