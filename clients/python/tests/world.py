"""What the tests run against: two proxies on the same lock nodes, whose addresses are in PROXIES, and a link in
front of one that can fall silent."""
import os
import socket
import subprocess
import sys
import threading
import time
import unittest
from contextlib import suppress

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

PROTOCOLS = (2, 3)
LONG = 60.0  # s; a lease that no test waits for the end of, and how long a test waits for what must come
SOON = LONG / 2  # well before the end of such a lease


def proxy(i=0):
    addresses = os.environ.get("PROXIES", "").split()
    if len(addresses) < 2:
        raise unittest.SkipTest("PROXIES names no two proxies")
    host, port = addresses[i].rsplit(":", 1)
    return {"host": host, "port": int(port)}


def tls():
    """Settings for a third proxy, which speaks TLS."""
    if "TLS_PROXY" not in os.environ:
        raise unittest.SkipTest("TLS_PROXY names no proxy")
    host, port = os.environ["TLS_PROXY"].rsplit(":", 1)
    return {"host": host, "port": int(port), "ssl": True, "ssl_ca_certs": os.environ["TLS_CA"]}


def impatient(seconds):
    """Settings of a client that gives up on a reply after that time, and does not try again by itself."""
    return {"socket_timeout": seconds, "retry": Retry(NoBackoff(), 0)}


class Recorder:
    """Is mixed into a client, and keeps what was sent."""

    def __init__(self, *args, **kwargs):
        self.sent = []
        super().__init__(*args, **kwargs)

    def execute_command(self, *command, **options):
        self.sent.append(command)
        return super().execute_command(*command, **options)

    def said(self, verb):
        return [c for c in self.sent if c[0] == verb]


class RecordingRedis(Recorder, redis.Redis):
    pass


def granted(answer, command):
    """An answer of which b"me" is who asks."""
    if isinstance(answer, list) and answer[1] == b"me":
        return [answer[0], command[command.index("OWNER") + 1].encode(), *answer[2:]]
    return answer


def until(condition, what):
    end = time.monotonic() + LONG
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(what)
        time.sleep(0.005)
    return value


class Look:
    """Looks at locks, and takes them away, as an operator does."""

    def __init__(self):
        self._redis = redis.Redis(**proxy(), decode_responses=True, protocol=2)

    def close(self):
        self._redis.close()

    def __call__(self, *command):
        return self._redis.execute_command("LOCKCTL", *command)

    def holder(self, name):
        """The owner of a lock, or None."""
        info = self("INFO", name)
        info = dict(zip(info[::2], info[1::2])) if info else {}
        return info.get("owner")

    def waiting(self, name):
        return len(self("WAITERS", name))

    def force(self, name):
        return self("FORCE", name)

    def hang_up(self, port):
        """Ends the connection that comes from that port."""
        return self._redis.execute_command("CLIENT", "KILL", "ADDR", f"127.0.0.1:{port}")


class Holder:
    """Another process that has a lock, see holder.py. It says its fence, and the end of its validity whenever that moves."""

    def __init__(self, *args):
        script = os.path.join(os.path.dirname(__file__), "holder.py")
        self._process = subprocess.Popen([sys.executable, script, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.fence = int(self.says())
        except AssertionError:
            self.close()
            raise

    def says(self):
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError("the holder has ended")
        return line.strip()

    def kill(self):
        """Kills it with -9, and returns the last that it said, or ""."""
        self._process.kill()
        self._process.wait()
        os.set_blocking(self._process.stdout.fileno(), False)  # a child of it may keep it open
        said = ""
        with suppress(TypeError, BlockingIOError):
            while line := self._process.stdout.readline():
                said = line.strip()
        return said

    def close(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.stdin.close()  # ends its children
        self._process.stdout.close()
        self._process.wait()


def holds_on(*args):
    """A holder that has been renewed for longer than its ttl, and the end of its validity."""
    for _ in range(10):  # on a busy machine one may lose its lock
        holder = Holder(*args)
        try:
            for _ in range(5):  # it is renewed at a third of its ttl
                valid_until = holder.says()
            return holder, valid_until
        except AssertionError:
            holder.close()
    raise AssertionError("no holder holds on")


class Link:
    """Forwards connections to a proxy, until it falls silent."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = {"host": "127.0.0.1", "port": self._listener.getsockname()[1]}
        self._silent, self._ends = threading.Event(), [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        to = proxy()
        with suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.create_connection((to["host"], to["port"]))
                self._ends += [near, far]
                threading.Thread(target=self._copy, args=(near, far), daemon=True).start()
                threading.Thread(target=self._copy, args=(far, near), daemon=True).start()

    def _copy(self, source, to):
        with suppress(OSError):
            while data := source.recv(65536):
                if not self._silent.is_set():
                    to.sendall(data)
            to.shutdown(socket.SHUT_RDWR)

    def fall_silent(self):
        self._silent.set()

    def close(self):
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
