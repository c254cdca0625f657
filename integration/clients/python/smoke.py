"""What an application does with redis-py, through the proxy: see ../doc.go."""

import hashlib
import os
import sys
import threading

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

HOST, PORT = os.environ["PROXY"].rsplit(":", 1)
BINARY = bytes(range(256))


def connect(protocol, **more):
    return redis.Redis(HOST, int(PORT), protocol=protocol, **more)


def strings(r):
    assert r.set(BINARY, BINARY) and r.get(BINARY) == BINARY
    assert r.get("none") is None
    assert r.incrbyfloat("float", 1.5) == 1.5
    r.hset("hash", mapping={"a": 1, "b": 2})
    assert r.hgetall("hash") == {b"a": b"1", b"b": b"2"}
    r.zadd("zset", {"x": 1.5, "y": 2})
    assert [(m, float(s)) for m, s in r.zrange("zset", 0, -1, withscores=True)] == [(b"x", 1.5), (b"y", 2.0)]


def pipeline(r):
    p = r.pipeline(transaction=False)
    for i in range(1000):
        p.incr("n")
    assert p.execute() == list(range(1, 1001))
    assert r.pipeline(transaction=False).set("text", "x").incr("text").get("text").execute(raise_on_error=False)[2] == b"x"


def transaction(r):
    with r.pipeline() as p:
        p.watch("watched")
        p.multi()
        p.set("watched", "mine")
        assert p.execute() == [True]
        p.watch("watched")
        r.set("watched", "theirs")
        p.multi()
        p.set("watched", "mine")
        try:
            p.execute()
            raise AssertionError("EXEC went through although the key was changed")
        except redis.WatchError:
            pass
    assert r.get("watched") == b"theirs"


def blocking(r):
    assert r.blpop("queue", timeout=1) is None
    timer = threading.Timer(0.1, lambda: r.rpush("queue", "late"))
    timer.start()
    assert tuple(r.blpop("queue", timeout=5)) == (b"queue", b"late")
    timer.join()


def pubsub(r):
    p = r.pubsub()
    p.subscribe("channel")
    p.psubscribe("pat*")
    assert [p.get_message(timeout=5)["type"] for _ in range(2)] == ["subscribe", "psubscribe"]
    r.publish("channel", BINARY)
    r.publish("pattern", "m")
    assert p.get_message(timeout=5)["data"] == BINARY
    assert p.get_message(timeout=5)["pattern"] == b"pat*"
    p.unsubscribe()
    p.close()


def script(r):
    text = "return {KEYS[1], ARGV[1], redis.call('incr', KEYS[1])}"
    r.script_flush()
    try:
        r.evalsha(hashlib.sha1(text.encode()).hexdigest(), 1, "counted", "x")
        raise AssertionError("EVALSHA knew a script that was flushed")
    except redis.exceptions.NoScriptError:
        pass
    run = r.register_script(text)
    assert run(keys=["counted"], args=["x"]) == [b"counted", b"x", 1]
    assert run(keys=["counted"], args=["x"])[2] == 2


def scan(r):
    r.mset({"scan:%d" % i: i for i in range(500)})
    assert len(set(r.scan_iter("scan:*", count=50))) == 500


def select(r):
    other = connect(r.get_connection_kwargs().get("protocol"), db=3)
    other.set("only", "three")
    assert other.get("only") == b"three" and r.get("only") is None
    other.close()


def auth(r):
    user = connect(r.get_connection_kwargs().get("protocol"), username="app", password="pw")
    assert user.acl_whoami() in ("app", b"app") and user.set("app:1", "x")
    try:
        user.set("other", "x")
        raise AssertionError("a user wrote a key that is not theirs")
    except redis.exceptions.NoPermissionError:
        pass
    user.close()
    try:
        connect(2, username="app", password="wrong", retry=Retry(NoBackoff(), 0)).ping()
        raise AssertionError("a wrong password was taken")
    except redis.exceptions.AuthenticationError:
        pass


def large(r):
    value = BINARY * (5 << 12)
    r.set("large", value)
    assert r.get("large") == value


def locks(r):
    one = r.client()  # on a connection of its own, not a pool's
    fence, owner, validity, holds = one.execute_command("LOCK", "job", "30s")
    assert fence > 0 and len(owner) > 0 and 0 < validity <= 30000 and holds == 1
    assert r.execute_command("LOCK", "job", "30s", "OWNER", "you") is None
    assert 0 < one.execute_command("RENEW", "job", "20s") <= 20000
    assert one.execute_command("UNLOCK", "job") == 1
    try:
        r.execute_command("RENEW", "job", "30s", "you")
        raise AssertionError("a lock was renewed that nobody has")
    except redis.ResponseError as e:
        assert str(e).startswith("LOCKLOST"), e
    one.close()


def reconnect(r):
    r.set("kept", "1")
    ask_restart()
    assert r.get("kept") == b"1"


def ask_restart():
    print("restart", flush=True)
    sys.stdin.readline()


CHECKS = {f.__name__: f for f in (strings, pipeline, transaction, blocking, pubsub, script, scan, select, auth, large, locks, reconnect)}


def main():
    for protocol in os.environ["PROTOCOLS"].split():
        r = connect(int(protocol[-1]))
        r.flushall()
        for name in os.environ["CHECKS"].split():
            try:
                CHECKS[name](r)
                print("ok %s %s" % (protocol, name), flush=True)
            except Exception as e:
                print("failed %s %s: %r" % (protocol, name, e), flush=True)


main()
