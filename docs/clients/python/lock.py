"""Takes and gives back locks of lockproxy with redis-py, over connections that break."""
import secrets
import time
from contextlib import suppress

from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError


class Lock:
    """Ours until `until` (of time.monotonic), unless released before. fence grows with every holder."""

    def __init__(self, client, name, owner, reply, asked):
        self.client, self.name, self.owner = client, name, owner
        self.fence, self.until = reply[0], asked + reply[2] / 1000

    def release(self):
        """An error that begins with LOCKLOST or NOTOWNER says that the lock was lost before."""
        call(self.until, self.client, "UNLOCK", self.name, self.owner, "REQ", self.owner)


def acquire(client, name, ttl, patience, wait=1.0):
    """Waits for the name for so many seconds, then returns None. wait must be less than the
    client's socket_timeout."""
    owner, end = secrets.token_hex(16), time.monotonic() + patience
    try:
        while True:
            asked = time.monotonic()
            reply = call(end, client, "LOCK", name, int(ttl * 1000), "OWNER", owner, "REQ", owner, "WAIT", int(wait * 1000))
            if reply and time.monotonic() < asked + reply[2] / 1000:
                return Lock(client, name, owner, reply, asked)
            if time.monotonic() > end:
                return None
    except RedisError:  # it may be granted, and the reply lost
        with suppress(RedisError):
            client.execute_command("UNLOCK", name, owner, "REQ", owner)
        raise


def call(end, client, *command):
    """Sends a command until it is answered, since its REQ makes it count once."""
    while True:
        try:
            return client.execute_command(*command)
        except (ConnectionError, TimeoutError):
            if time.monotonic() > end:
                raise
        except ResponseError as e:
            if not str(e).startswith(("DRAINING", "NOQUORUM")) or time.monotonic() > end:
                raise
        time.sleep(0.1)
