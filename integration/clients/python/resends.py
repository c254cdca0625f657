"""Takes and gives back a lock over and over, and says when."""
import os
import time

import redis
from lock import acquire


class LosesOneReply:
    """A client whose LOCK may have been granted, and who is then told that too few nodes answer."""

    sent = []

    def execute_command(self, *command):
        self.sent.append(command[0])
        if len(self.sent) == 1:
            raise redis.ConnectionError
        raise redis.ResponseError("NOQUORUM")


try:
    acquire(LosesOneReply(), "job", 30, 0.01)
except redis.ResponseError:
    assert LosesOneReply.sent[-1] == "UNLOCK", "a lock that may have been granted was not given back"

host, port = os.environ["PROXY"].split(":")
client = redis.Redis(host=host, port=int(port), socket_timeout=0.2, decode_responses=True)
end = time.monotonic() + float(os.environ["SECONDS"])
while time.monotonic() < end:
    lock = acquire(client, "job", 30, 20, 0.1)
    print(os.environ["WHO"], "locked", lock.fence, flush=True)
    print(os.environ["WHO"], "unlocking", flush=True)
    lock.release()
