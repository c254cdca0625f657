"""Locks of redis.Redis, at proxies, in RESP2 and RESP3."""
import os
import threading
import time
import unittest
from unittest import mock

import redis
import redis.asyncio
from redis.exceptions import NoPermissionError, ResponseError
from world import LONG, SOON, Holder, Link, Look, RecordingRedis, granted, holds_on, impatient, proxy, tls, until

from lockproxy import LockLost, LockNotAcquired, Locks


class Tests:
    protocol = 0

    def setUp(self):
        self.look = Look()
        self.addCleanup(self.look.close)
        self.name = self.id()
        self.client = self.connect(**proxy())
        self.locks = Locks(self.client)
        self.reasons = []

    def connect(self, **settings):
        client = RecordingRedis(protocol=self.protocol, **settings)
        self.addCleanup(client.close)
        return client

    def start(self, work):
        """Does the work in a thread, and returns what waits for its end and its result."""
        results = []
        thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
        thread.start()

        def result():
            thread.join(LONG)
            return results[0]

        return result

    def told(self):
        """Why the lock is lost; the test fails if that is not told, or twice."""
        until(lambda: self.reasons, "the loss is not told")
        self.addCleanup(lambda: self.assertEqual(len(self.reasons), 1))
        return self.reasons[0]

    def free(self, name=None):
        until(lambda: self.look.holder(name or self.name) is None, "it is not free")

    def test_taken_and_given_back(self):
        with self.locks.lock(self.name, ttl=LONG) as lock:
            self.assertEqual((lock.name, lock.lost), (self.name, False))
            self.assertTrue(SOON < lock.remaining <= LONG)
            self.assertEqual(self.look.holder(self.name), lock.owner)
            lock.check()
            self.assertIsNone(self.locks.acquire(self.name))
            with self.assertRaises(LockNotAcquired):
                with self.locks.lock(self.name):
                    self.fail("two have the lock")
            self.assertFalse(lock.lost)
        self.assertIsNone(self.look.holder(self.name))
        again = self.locks.acquire(self.name, info="me")
        self.assertGreater(again.fence, lock.fence)
        lock.release()
        self.assertEqual(self.look.holder(self.name), again.owner)
        again.release()
        again.release()
        self.assertIsNone(self.look.holder(self.name))

    def test_readers(self):
        """They have it at the same time, each renewed, and keep a writer out until the last has gone, who keeps them out."""
        first = self.locks.acquire(self.name, ttl=LONG / 10, shared=True)
        second = self.locks.acquire(self.name, ttl=LONG, shared=True, session=True)
        valid_until = first.valid_until
        until(lambda: first.valid_until > valid_until, "it is not renewed")
        self.assertIsNone(self.locks.acquire(self.name))
        first.release()
        self.assertIsNone(self.locks.acquire(self.name))
        second.release()
        with self.locks.lock(self.name, ttl=LONG) as writer:
            self.assertGreater(writer.fence, max(first.fence, second.fence))
            self.assertIsNone(self.locks.acquire(self.name, shared=True))
        with self.locks.lock(self.name, shared=True) as reader:
            self.assertGreaterEqual(reader.fence, writer.fence)

    def test_permits(self):
        """As many have it at the same time as there are permits, each renewed; nobody has it for itself meanwhile."""
        first = self.locks.acquire(self.name, ttl=LONG / 10, permits=2)
        second = self.locks.acquire(self.name, ttl=LONG, permits=2, session=True)
        self.assertGreater(second.fence, first.fence)
        valid_until = first.valid_until
        until(lambda: first.valid_until > valid_until, "it is not renewed")
        self.assertIsNone(self.locks.acquire(self.name, permits=2))
        self.assertIsNone(self.locks.acquire(self.name))
        first.release()
        with self.locks.lock(self.name, permits=2) as third:
            self.assertGreater(third.fence, second.fence)
        second.release()
        with self.locks.lock(self.name, ttl=LONG):
            self.assertIsNone(self.locks.acquire(self.name, permits=2))

    def test_several_names(self):
        """All or none: who waits for them holds none, and gets them when they are given back together."""
        a, b, c = (self.name + end for end in "abc")
        first = self.locks.acquire_all([b, a], ttl=LONG / 10)
        self.assertEqual((first.names, set(first.fences)), ([b, a], {a, b}))
        with self.assertRaises(LockNotAcquired):
            with self.locks.lock_all([c, b], ttl=LONG):
                self.fail("two have one of them")
        result = self.start(lambda: self.locks.acquire_all([a, b, c], ttl=LONG, wait=LONG, session=True))
        until(lambda: self.look.waiting(a) or self.look.waiting(b), "it is not in line")
        valid_until = first.valid_until
        until(lambda: first.valid_until > valid_until, "it is not renewed")
        self.assertIsNone(self.look.holder(c))
        self.assertEqual((self.look.holder(a), self.look.holder(b)), (first.owner, first.owner))
        first.release()
        second = result()
        self.assertTrue(second.fences[a] > first.fences[a] and second.fences[b] > first.fences[b] and second.fences[c])
        second.release()
        with self.locks.lock_all((a, b), shared=True):
            with self.locks.lock_all((b, c), shared=True):
                self.assertIsNone(self.locks.acquire(c))
        self.assertEqual([self.look.holder(n) for n in (a, b, c)], [None, None, None])

    def test_one_of_several_forced(self):
        """The lock is lost, and the others are given back."""
        a, b = self.name + "a", self.name + "b"
        for session in (False, True):
            with self.subTest(session=session):
                self.reasons.clear()
                with self.assertRaises(LockLost):
                    with self.locks.lock_all([a, b], ttl=LONG / 2, session=session, on_lost=self.reasons.append) as lock:
                        self.look.force(b)
                        until(lambda: self.reasons, "the loss is not told")
                        self.assertRegex(self.reasons[0], "^LOCKLOST .*b: |^its connection ended")
                        self.assertRaises(LockLost, lock.check)
                until(lambda: lock.owner in {c[4] for c in self.client.said("UNLOCKALL")}, "the others are not given back")
                self.free(a)
                self.assertEqual(len(self.reasons), 1)

    def test_decorator(self):
        @self.locks.lock(self.name)
        def work(seen):
            return self.look.holder(self.name) is not None and seen

        self.assertEqual([work(1), work(2)], [1, 2])
        self.assertIsNone(self.look.holder(self.name))

    def test_served_in_turn(self):
        """Each waits for longer than its client's read timeout, and asks again and again: that does not cost it its place."""
        for tried in range(5):  # who is kept from asking again for 2 s, on a busy machine, may lose it
            order = []
            held = self.locks.acquire(self.name, ttl=LONG)
            waiters = []

            def wait(i, client):
                with Locks(client).lock(self.name, ttl=LONG, wait=LONG):
                    order.append(i)

            for i in range(3):
                client = self.connect(**proxy(), **impatient(0.4))
                waiters.append((client, self.start(lambda i=i, client=client: wait(i, client))))
                until(lambda: self.look.waiting(self.name) == i + 1, "it is not in line")
            for client, _ in waiters:
                until(lambda: len(client.said("LOCK")) > 2, "it does not ask again")
            held.release()
            for client, result in waiters:
                result()
                self.assertEqual(len({(c[4], c[6]) for c in client.said("LOCK")}), 1, "it asked as another")
            if order == [0, 1, 2]:
                return
        self.fail(f"served as {order}")

    def test_the_wait_is_over(self):
        client = self.connect(**proxy(), **impatient(0.4))
        with self.locks.lock(self.name, ttl=LONG):
            asked = time.monotonic()
            self.assertIsNone(Locks(client).acquire(self.name, wait=0.7))
            self.assertGreaterEqual(time.monotonic(), asked + 0.7)
            until(lambda: self.look.waiting(self.name) == 0, "it still waits")
        self.free()

    def test_killed_in_a_session(self):
        for more in ((), ("fork",), ("fork-asking",)):  # a child that lives on does not keep the lock
            with self.subTest(more):
                holder = Holder("sync", str(self.protocol), self.name, str(LONG), "session", *more)
                self.addCleanup(holder.close)
                result = self.start(lambda: self.locks.acquire(self.name, ttl=LONG, wait=LONG))
                until(lambda: self.look.waiting(self.name), "it is not in line")
                killed = time.monotonic()
                holder.kill()
                lock = result()
                self.assertLess(time.monotonic(), killed + SOON)
                self.assertGreater(lock.fence, holder.fence)
                lock.release()

    def test_killed_while_it_renews(self):
        holder, valid_until = holds_on("sync", str(self.protocol), self.name, "2")
        self.addCleanup(holder.close)
        valid_until = holder.kill() or valid_until
        lock = self.locks.acquire(self.name, ttl=LONG, wait=LONG)
        self.assertGreaterEqual(time.monotonic(), float(valid_until))
        self.assertGreater(lock.fence, holder.fence)
        lock.release()

    def test_forced(self):
        for session, ttl in ((False, 3.0), (True, LONG)):
            with self.subTest(session=session):
                self.reasons.clear()
                with self.assertRaises(LockLost):
                    with self.locks.lock(self.name, ttl=ttl, session=session, on_lost=self.reasons.append) as lock:
                        self.look.force(self.name)
                        until(lambda: self.reasons, "the loss is not told")
                        self.assertRegex(self.reasons[0], "^LOCKLOST|^its connection ended")
                        self.assertTrue(lock.lost)
                        self.assertEqual(lock.remaining, 0)
                        self.assertRaises(LockLost, lock.check)
                lock.release()
                self.assertEqual(len(self.reasons), 1)

    def test_forced_and_released_at_once(self):
        for session in (False, True):
            with self.subTest(session=session):
                lock = self.locks.acquire(self.name, ttl=LONG, session=session)
                self.look.force(self.name)
                self.assertRaises(LockLost, lock.release)
                lock.release()

    def test_what_the_body_raises_comes_first(self):
        with self.assertRaises(ZeroDivisionError):
            with self.locks.lock(self.name, ttl=LONG):
                self.look.force(self.name)
                1 / 0
        with self.assertRaises(ZeroDivisionError):
            with self.locks.lock(self.name, ttl=LONG):
                1 / 0
        self.assertIsNone(self.look.holder(self.name))

    def test_end_of_a_sessions_connection(self):
        self.end_of_a_sessions_connection(self.locks, lambda connection: self.look.hang_up(connection.getsockname()[1]))

    def end_of_a_sessions_connection(self, locks, hang_up):
        lock = locks.acquire(self.name, ttl=LONG, session=True, on_lost=self.reasons.append)
        self.assertFalse(lock.lost)
        hung_up = time.monotonic()
        hang_up(lock._line._connection._sock)
        self.assertRegex(self.told(), "^its connection ended")
        self.assertLess(time.monotonic(), hung_up + LONG / 4)  # before a renewal would notice
        other = self.locks.acquire(self.name, ttl=LONG, wait=SOON)
        self.assertIsNotNone(other)
        self.assertRaises(LockLost, lock.release)
        self.assertEqual(self.look.holder(self.name), other.owner)
        other.release()

    def test_session_over_tls(self):
        locks = Locks(self.connect(**tls()))
        with locks.lock(self.name, ttl=3, session=True) as lock:
            before = lock.valid_until
            until(lambda: lock.valid_until > before, "it is not renewed")
        self.assertIsNone(self.look.holder(self.name))
        self.end_of_a_sessions_connection(locks, lambda _: self.look.force(self.name))

    def test_no_answer_until_the_validity_is_over(self):
        for session in (False, True):
            with self.subTest(session=session):
                self.reasons.clear()
                link, told_at = Link(), []
                self.addCleanup(link.close)
                locks = Locks(self.connect(**link.address, **impatient(5)))
                lock = locks.acquire(self.name, ttl=1, wait=LONG, session=session, on_lost=lambda why: (told_at.append(time.monotonic()), self.reasons.append(why)))
                link.fall_silent()
                until(lambda: self.reasons, "the loss is not told")
                self.assertGreaterEqual(told_at[0], lock.valid_until)
                self.assertRegex(self.reasons[0], "^its validity ended")
                self.assertRaises(LockLost, lock.release)
                self.assertEqual(len(self.reasons), 1)
                link.close()
                self.free()

    def test_not_renewed(self):
        lock = self.locks.acquire(self.name, ttl=0.5, wait=LONG, renew=False, on_lost=self.reasons.append)
        self.assertEqual(self.told(), "its validity ended")
        self.assertEqual(self.client.said("RENEW"), [])
        self.assertRaises(LockLost, lock.release)
        self.free()

    def test_the_proxy_ends_a_session_after_max_hold(self):
        lock = self.locks.acquire(self.name, ttl=LONG, max_hold=0.5, session=True, on_lost=self.reasons.append)
        self.assertRegex(self.told(), "^its connection ended|max_hold$")  # told by whoever is first
        self.assertRaises(LockLost, lock.release)

    def test_session_ends_with_the_lock(self):
        with self.locks.lock(self.name, session=True) as lock:
            port = lock._line._connection._sock.getsockname()[1]
            self.assertIn(f":{port} ", clients(self.client))
        until(lambda: f":{port} " not in clients(self.client), "its connection is still open")

    @unittest.skipUnless(hasattr(os, "fork"), "forks")
    def test_a_child_has_no_part_in_it(self):
        for session in (False, True):
            with self.subTest(session=session), self.locks.lock(self.name, ttl=LONG, session=session) as lock:
                if (child := os.fork()) == 0:
                    lock.release()
                    os._exit(0)
                os.waitpid(child, 0)
                self.assertEqual(self.look.holder(self.name), lock.owner)
        self.assertIsNone(self.look.holder(self.name))

    def test_through_another_proxy(self):
        """A lock is renewed and given back wherever the client's connections lead."""
        client = self.connect(**proxy())
        with Locks(client).lock(self.name, ttl=LONG):
            client.connection_pool.connection_kwargs.update(proxy(1))
            client.connection_pool.disconnect()
            client.connection_pool.reset()
        self.assertIsNone(self.look.holder(self.name))


def clients(client):
    client = redis.Redis(**{k: client.connection_pool.connection_kwargs[k] for k in ("host", "port")}, protocol=2)
    client.response_callbacks.clear()
    try:
        return client.execute_command("CLIENT LIST").decode()
    finally:
        client.close()


class Resp2(Tests, unittest.TestCase):
    protocol = 2


class Resp3(Tests, unittest.TestCase):
    protocol = 3


class Scripted:
    """A client whose commands are answered as a test says: by a reply or an error, or not before an event. What is behind
    them is answered 1."""

    def __init__(self, *answers):
        self.answers, self.sent, self.asked_at = list(answers), [], []
        self.connection_pool = self
        self.connection_kwargs = {}

    def execute_command(self, *command):
        self.sent.append(command)
        self.asked_at.append(time.monotonic())
        time.sleep(0.001)
        answer = self.answers.pop(0) if self.answers else 1
        if isinstance(answer, threading.Event):
            answer.wait(2 * LONG)
            answer = 1
        if isinstance(answer, BaseException):
            raise answer
        return granted(answer, command)

    def verbs(self):
        return [c[0] for c in self.sent]


GRANT = [7, b"me", 29_000, 1]


class AnswersTest(unittest.TestCase):
    def test_tried_again_as_it_was(self):
        client = Scripted(redis.ConnectionError("gone"), redis.TimeoutError("late"), ResponseError("NOQUORUM 1 of 3"), ResponseError("DRAINING"), GRANT)
        lock = Locks(client).acquire("job", wait=LONG)
        self.assertEqual(client.verbs(), ["LOCK"] * 5)
        self.assertEqual({c[4] for c in client.sent} | {c[6] for c in client.sent}, {lock.owner})
        client.answers = [redis.ConnectionError("gone"), ResponseError("NOQUORUM"), 1]
        lock.release()
        self.assertEqual(client.sent[5:], [("UNLOCK", "job", lock.owner, "REQ", lock.owner)] * 3)

    def test_unlock_in_an_outage(self):
        """It is sent again and again, but less often each time, and the last time when the lease is over."""
        client = Scripted([7, b"me", 3000, 1], *[ResponseError("NOQUORUM 0 of 3")] * 100)
        lock = Locks(client).acquire("job", ttl=3.0)
        with self.assertRaisesRegex(ResponseError, "NOQUORUM"):
            lock.release()
        self.assertEqual(client.verbs()[0], "LOCK")
        self.assertEqual(set(client.verbs()[1:]), {"UNLOCK"})
        self.assertLessEqual(len(client.sent), 1 + 7)  # after 0, 0.1, 0.3, 0.7, 1.5, 2.3 and 3 s
        self.assertGreaterEqual(client.asked_at[-1], lock.valid_until)

    def test_lock_in_an_outage(self):
        """It is sent less and less often, and the last time when the wait is over."""
        client = Scripted(*[ResponseError("NOQUORUM 0 of 3")] * 100)
        began = time.monotonic()
        self.assertRaisesRegex(ResponseError, "NOQUORUM", Locks(client).acquire, "job", wait=3.0)
        asked = [at for at, verb in zip(client.asked_at, client.verbs()) if verb == "LOCK"]
        self.assertLessEqual(len(asked), 7)  # after 0, 0.1, 0.3, 0.7, 1.5, 2.3 and 3 s
        self.assertGreaterEqual(asked[-1], began + 3)

    def test_given_back_in_an_outage(self):
        client = Scripted(*[ResponseError("NOQUORUM 0 of 3")] * 100)
        self.assertRaises(ResponseError, Locks(client).acquire, "job", ttl=0.8)
        until(lambda: client.asked_at[-1] >= client.asked_at[0] + 0.8, "it gives up before the lease is over")
        self.assertLessEqual(client.verbs().count("UNLOCK"), 5)

    def test_what_cannot_succeed_is_not_tried_again(self):
        for error in (NoPermissionError("no"), ResponseError("MAXWAIT"), redis.AuthenticationError("wrong")):
            with self.subTest(error=repr(error)):
                client = Scripted(error)
                self.assertRaises(type(error), Locks(client).acquire, "job", wait=LONG)
                self.assertEqual(client.verbs(), ["LOCK", "UNLOCK"])

    def test_it_may_have_been_granted(self):
        for error in (redis.ConnectionError("gone"), KeyboardInterrupt()):
            with self.subTest(error=repr(error)):
                client = Scripted(error, redis.ConnectionError("gone"))
                self.assertRaises(type(error), Locks(client).acquire, "job")
                self.assertEqual(client.verbs(), ["LOCK", "UNLOCK", "UNLOCK"])
                self.assertEqual(client.sent[1][2:], (client.sent[0][4], "REQ", client.sent[0][6]))

    def test_an_answer_to_another_command(self):
        """is none to LOCK: who was interrupted left it behind on the connection."""
        for stale in (1, 29_000, [7, b"another", 29_000, 1]):
            with self.subTest(stale):
                client = Scripted(stale, GRANT)
                lock = Locks(client).acquire("job", wait=LONG)
                self.assertEqual((client.verbs(), lock.fence), (["LOCK", "LOCK"], 7))
                lock.release()
                client = Scripted(stale)
                self.assertRaises(redis.ConnectionError, Locks(client).acquire, "job")
                self.assertEqual(client.verbs(), ["LOCK", "UNLOCK"])

    def test_interrupted_when_it_is_granted(self):
        """Nobody has the lock, so nobody is told of its end."""
        reasons, threads = [], threading.enumerate()

        class Interrupted(threading.Thread):
            def start(self):
                super().start()
                if self.name.startswith("lockproxy 'job'"):
                    raise KeyboardInterrupt

        client = Scripted([7, b"me", 30, 1])
        with mock.patch.object(threading, "Thread", Interrupted):
            self.assertRaises(KeyboardInterrupt, Locks(client).acquire, "job", on_lost=reasons.append)
        until(lambda: threading.enumerate() == threads, "it is still renewed")
        self.assertEqual((client.verbs(), reasons), (["LOCK", "UNLOCK"], []))

    def test_valid_from_before_it_was_asked_for(self):
        client = Scripted(redis.ConnectionError("gone"), GRANT)
        lock = Locks(client).acquire("job", wait=LONG)
        self.assertLessEqual(lock.valid_until, client.asked_at[1] + 29)
        self.assertGreater(lock.valid_until, client.asked_at[0] + 29)
        lock.release()

    def test_over_when_it_arrives(self):
        client = Scripted([7, b"me", 0, 0], 1, GRANT)
        lock = Locks(client).acquire("job", wait=LONG)
        self.assertEqual(client.verbs(), ["LOCK", "UNLOCK", "LOCK"])
        first, given_back, second = client.sent
        self.assertEqual(given_back[2], first[4])
        self.assertNotEqual(second[4], first[4])
        self.assertEqual(lock.owner, second[4])
        lock.release()

    def test_lost_while_a_renewal_hangs(self):
        answered, reasons = threading.Event(), []
        self.addCleanup(answered.set)
        Locks(Scripted([7, b"me", 1000, 1], answered)).acquire("job", ttl=0.06, on_lost=reasons.append)
        until(lambda: reasons, "the loss is not told")
        self.assertEqual(reasons, ["its validity ended"])

    def test_on_lost_may_wait_for_the_work(self):
        hangs, stop, told = threading.Event(), threading.Event(), threading.Event()
        self.addCleanup(hangs.set)

        def lost(reason):
            stop.set()
            worker.join(LONG)
            told.set()

        def work():
            with self.assertRaises(LockLost):
                with Locks(Scripted([7, b"me", 1000, 1], hangs)).lock("job", ttl=0.06, on_lost=lost):
                    stop.wait(LONG)

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        self.assertTrue(told.wait(SOON), "the work does not end")

    def test_released(self):
        lock = Locks(Scripted(GRANT)).acquire("job", ttl=LONG)
        lock.release()
        self.assertEqual((lock.remaining, lock.lost), (0, False))
        self.assertRaisesRegex(LockLost, "it was released", lock.check)

    def test_client_of_the_other_kind(self):
        with self.assertRaisesRegex(TypeError, "lockproxy.asyncio.Locks"):
            Locks(redis.asyncio.Redis())

    def test_lost_when_it_is_given_back(self):
        for said in ("LOCKLOST gone", "NOTOWNER another"):
            client = Scripted(GRANT, ResponseError(said))
            with self.assertRaisesRegex(LockLost, said):
                with Locks(client).lock("job"):
                    pass

    def test_interrupted_while_it_gives_back(self):
        client = Scripted(GRANT, KeyboardInterrupt())
        lock = Locks(client).acquire("job")
        self.assertRaises(KeyboardInterrupt, lock.release)
        self.assertEqual(client.verbs(), ["LOCK", "UNLOCK", "UNLOCK"])

    def test_given_back_until_the_lease_is_over(self):
        client = Scripted([7, b"me", 1000, 1], *[redis.ConnectionError("gone")] * 100)
        lock = Locks(client).acquire("job", renew=False)
        self.assertRaises((redis.ConnectionError, LockLost), lock.release)
        self.assertGreaterEqual(time.monotonic(), lock.valid_until)


if __name__ == "__main__":
    unittest.main()
