"""Takes and gives back a lock over and over, and says when."""
import os
import time

import redis
from lock import acquire

host, port = os.environ["PROXY"].split(":")
client = redis.Redis(host=host, port=int(port), socket_timeout=0.2, decode_responses=True)
end = time.monotonic() + float(os.environ["SECONDS"])
while time.monotonic() < end:
    lock = acquire(client, "job", 30, 20, 0.1)
    print(os.environ["WHO"], "locked", lock.fence, flush=True)
    print(os.environ["WHO"], "unlocking", flush=True)
    lock.release()
