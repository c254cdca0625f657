"""Locks of redis.asyncio.Redis, at proxies, in RESP2 and RESP3."""
import asyncio
import time
import unittest
from contextlib import suppress

import redis
import redis.asyncio
from redis.exceptions import NoPermissionError, ResponseError
from world import LONG, SOON, Holder, Link, Look, Recorder, granted, holds_on, proxy, tls
from world import impatient as impatient_sync

from lockproxy.asyncio import LockLost, LockNotAcquired, Locks


class RecordingRedis(Recorder, redis.asyncio.Redis):
    pass


def impatient(seconds):
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    return {**impatient_sync(seconds), "retry": Retry(NoBackoff(), 0)}


async def until(condition, what):
    end = time.monotonic() + LONG
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(what)
        await asyncio.sleep(0.005)
    return value


def is_cancelled():
    task = asyncio.current_task()
    return hasattr(task, "cancelling") and task.cancelling() > 0  # since Python 3.11


class Tests:
    protocol = 0

    async def asyncSetUp(self):
        self.look = Look()
        self.addCleanup(self.look.close)
        self.name = self.id()
        self.client = self.connect(**proxy())
        self.locks = Locks(self.client)
        self.reasons = []

    def connect(self, **settings):
        client = RecordingRedis(protocol=self.protocol, **settings)
        self.addAsyncCleanup(client.aclose)
        return client

    async def test_taken_and_given_back(self):
        async with self.locks.lock(self.name, ttl=LONG) as lock:
            self.assertEqual((lock.name, lock.lost), (self.name, False))
            self.assertTrue(SOON < lock.remaining <= LONG)
            self.assertEqual(self.look.holder(self.name), lock.owner)
            lock.check()
            self.assertIsNone(await self.locks.acquire(self.name))
            with self.assertRaises(LockNotAcquired):
                async with self.locks.lock(self.name):
                    self.fail("two have the lock")
            self.assertFalse(lock.lost)
        self.assertIsNone(self.look.holder(self.name))
        again = await self.locks.acquire(self.name, info="me")
        self.assertGreater(again.fence, lock.fence)
        await lock.release()
        self.assertEqual(self.look.holder(self.name), again.owner)
        await again.release()
        await again.release()
        self.assertIsNone(self.look.holder(self.name))

    async def test_readers(self):
        """They have it at the same time, each renewed, and keep a writer out until the last has gone, who keeps them out."""
        first = await self.locks.acquire(self.name, ttl=LONG / 10, shared=True)
        second = await self.locks.acquire(self.name, ttl=LONG, shared=True, session=True)
        valid_until = first.valid_until
        await until(lambda: first.valid_until > valid_until, "it is not renewed")
        self.assertIsNone(await self.locks.acquire(self.name))
        await first.release()
        self.assertIsNone(await self.locks.acquire(self.name))
        await second.release()
        async with self.locks.lock(self.name, ttl=LONG) as writer:
            self.assertGreater(writer.fence, max(first.fence, second.fence))
            self.assertIsNone(await self.locks.acquire(self.name, shared=True))
        async with self.locks.lock(self.name, shared=True) as reader:
            self.assertGreaterEqual(reader.fence, writer.fence)

    async def test_permits(self):
        """As many have it at the same time as there are permits, each renewed; nobody has it for itself meanwhile."""
        first = await self.locks.acquire(self.name, ttl=LONG / 10, permits=2)
        second = await self.locks.acquire(self.name, ttl=LONG, permits=2, session=True)
        self.assertGreater(second.fence, first.fence)
        valid_until = first.valid_until
        await until(lambda: first.valid_until > valid_until, "it is not renewed")
        self.assertIsNone(await self.locks.acquire(self.name, permits=2))
        self.assertIsNone(await self.locks.acquire(self.name))
        await first.release()
        async with self.locks.lock(self.name, permits=2) as third:
            self.assertGreater(third.fence, second.fence)
        await second.release()
        async with self.locks.lock(self.name, ttl=LONG):
            self.assertIsNone(await self.locks.acquire(self.name, permits=2))

    async def test_several_names(self):
        """All or none: who waits for them holds none, and gets them when they are given back together."""
        a, b, c = (self.name + end for end in "abc")
        first = await self.locks.acquire_all([b, a], ttl=LONG / 10)
        self.assertEqual((first.names, set(first.fences)), ([b, a], {a, b}))
        with self.assertRaises(LockNotAcquired):
            async with self.locks.lock_all([c, b], ttl=LONG):
                self.fail("two have one of them")
        waiting = asyncio.create_task(self.locks.acquire_all([a, b, c], ttl=LONG, wait=LONG, session=True))
        await until(lambda: self.look.waiting(a) or self.look.waiting(b), "it is not in line")
        valid_until = first.valid_until
        await until(lambda: first.valid_until > valid_until, "it is not renewed")
        self.assertIsNone(self.look.holder(c))
        self.assertEqual((self.look.holder(a), self.look.holder(b)), (first.owner, first.owner))
        await first.release()
        second = await waiting
        self.assertTrue(second.fences[a] > first.fences[a] and second.fences[b] > first.fences[b] and second.fences[c])
        await second.release()
        async with self.locks.lock_all((a, b), shared=True):
            async with self.locks.lock_all((b, c), shared=True):
                self.assertIsNone(await self.locks.acquire(c))
        self.assertEqual([self.look.holder(n) for n in (a, b, c)], [None, None, None])

    async def test_one_of_several_forced(self):
        """The body is cancelled, and the others are given back."""
        a, b = self.name + "a", self.name + "b"
        for session in (False, True):
            with self.subTest(session=session):
                self.reasons.clear()
                with self.assertRaises(LockLost):
                    async with self.locks.lock_all([a, b], ttl=LONG / 2, session=session, on_lost=self.reasons.append) as lock:
                        self.look.force(b)
                        await asyncio.sleep(LONG)
                self.assertIn(lock.owner, {c[4] for c in self.client.said("UNLOCKALL")})
                await until(lambda: self.look.holder(a) is None, "it is not free")
                await until(lambda: self.reasons, "the loss is not told")
                self.assertRegex(self.reasons[0], "^LOCKLOST .*b: |^its connection ended")
                self.assertEqual(len(self.reasons), 1)

    async def test_decorator(self):
        @self.locks.lock(self.name)
        async def work(seen):
            return self.look.holder(self.name) is not None and seen

        self.assertEqual([await work(1), await work(2)], [1, 2])
        self.assertIsNone(self.look.holder(self.name))

    async def test_served_in_turn(self):
        """Each waits for longer than its client's read timeout, and asks again and again: that does not cost it its place."""
        for tried in range(5):  # who is kept from asking again for 2 s, on a busy machine, may lose it
            order = []
            held = await self.locks.acquire(self.name, ttl=LONG)
            waiters = []

            async def wait(i, client):
                async with Locks(client).lock(self.name, ttl=LONG, wait=LONG):
                    order.append(i)

            for i in range(3):
                client = self.connect(**proxy(), **impatient(0.4))
                waiters.append((client, asyncio.create_task(wait(i, client))))
                await until(lambda: self.look.waiting(self.name) == i + 1, "it is not in line")
            for client, _ in waiters:
                await until(lambda: len(client.said("LOCK")) > 2, "it does not ask again")
            await held.release()
            for client, task in waiters:
                await task
                self.assertEqual(len({(c[4], c[6]) for c in client.said("LOCK")}), 1, "it asked as another")
            if order == [0, 1, 2]:
                return
        self.fail(f"served as {order}")

    async def test_cancelled_while_it_waits(self):
        for session in (False, True):
            with self.subTest(session=session):
                async with self.locks.lock(self.name, ttl=LONG):
                    task = asyncio.create_task(self.locks.acquire(self.name, wait=LONG, session=session))
                    await until(lambda: self.look.waiting(self.name), "it is not in line")
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                    await until(lambda: not self.look.waiting(self.name), "it is still in line")
                self.assertIsNone(self.look.holder(self.name))

    async def test_killed_in_a_session(self):
        for more in ((), ("fork",), ("fork-asking",)):  # a child that lives on does not keep the lock
            with self.subTest(more):
                holder = Holder("asyncio", str(self.protocol), self.name, str(LONG), "session", *more)
                self.addCleanup(holder.close)
                task = asyncio.create_task(self.locks.acquire(self.name, ttl=LONG, wait=LONG))
                await until(lambda: self.look.waiting(self.name), "it is not in line")
                killed = time.monotonic()
                holder.kill()
                lock = await task
                self.assertLess(time.monotonic(), killed + SOON)
                self.assertGreater(lock.fence, holder.fence)
                await lock.release()

    async def test_killed_while_it_renews(self):
        holder, valid_until = holds_on("asyncio", str(self.protocol), self.name, "2")
        self.addCleanup(holder.close)
        valid_until = holder.kill() or valid_until
        lock = await self.locks.acquire(self.name, ttl=LONG, wait=LONG)
        self.assertGreaterEqual(time.monotonic(), float(valid_until))
        self.assertGreater(lock.fence, holder.fence)
        await lock.release()

    async def test_loss_cancels_the_body(self):
        for session, ttl in ((False, 3.0), (True, LONG)):
            with self.subTest(session=session):
                self.reasons.clear()
                with self.assertRaises(LockLost):
                    async with self.locks.lock(self.name, ttl=ttl, session=session, on_lost=self.reasons.append) as lock:
                        self.look.force(self.name)
                        await asyncio.sleep(2 * LONG)
                self.assertRegex(self.reasons[0], "^LOCKLOST|^its connection ended")
                self.assertEqual((lock.lost, lock.remaining), (True, 0))
                self.assertRaises(LockLost, lock.check)
                await lock.release()
                self.assertEqual(len(self.reasons), 1)
                self.assertFalse(is_cancelled())

    async def test_body_that_does_not_listen(self):
        with self.assertRaises(LockLost):
            async with self.locks.lock(self.name, ttl=LONG, session=True):
                self.look.force(self.name)
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(LONG)
        self.assertFalse(is_cancelled())

    @unittest.skipUnless(hasattr(asyncio.Task, "uncancel"), "before Python 3.11 the two cannot be told apart")
    async def test_lost_and_cancelled_from_outside(self):
        cut = asyncio.Event()

        async def work():
            async with self.locks.lock(self.name, ttl=LONG, session=True):
                self.look.force(self.name)
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(LONG)
                cut.set()
                await asyncio.sleep(LONG)

        task = asyncio.create_task(work())
        await cut.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task

    async def test_on_lost_may_be_a_coroutine_function(self):
        async def told(reason):
            with self.assertRaises(LockLost):
                await lock.release()
            self.reasons.append(reason)

        lock = await self.locks.acquire(self.name, ttl=LONG, session=True, on_lost=told)
        self.look.force(self.name)
        await until(lambda: self.reasons, "the loss is not told")

    async def test_cancelled_from_outside(self):
        """The lock is given back, and the cancellation goes on."""
        task = None

        async def work():
            async with self.locks.lock(self.name, ttl=LONG):
                task.cancel()
                await asyncio.sleep(LONG)

        task = asyncio.create_task(work())
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertIsNone(self.look.holder(self.name))

    async def test_what_the_body_raises_comes_first(self):
        with self.assertRaises(ZeroDivisionError):
            async with self.locks.lock(self.name, ttl=LONG):
                self.look.force(self.name)
                1 / 0
        with self.assertRaises(ZeroDivisionError):
            async with self.locks.lock(self.name, ttl=LONG):
                1 / 0
        self.assertIsNone(self.look.holder(self.name))

    async def test_forced_and_released_at_once(self):
        for session in (False, True):
            with self.subTest(session=session):
                lock = await self.locks.acquire(self.name, ttl=LONG, session=session)
                self.look.force(self.name)
                with self.assertRaises(LockLost):
                    await lock.release()
                await lock.release()

    async def test_end_of_a_sessions_connection(self):
        await self.end_of_a_sessions_connection(self.locks, lambda socket: self.look.hang_up(socket.getsockname()[1]))

    async def end_of_a_sessions_connection(self, locks, hang_up):
        lock = await locks.acquire(self.name, ttl=LONG, session=True, on_lost=self.reasons.append)
        self.assertFalse(lock.lost)
        hung_up = time.monotonic()
        hang_up(lock._line._connection._writer.get_extra_info("socket"))
        await until(lambda: self.reasons, "the loss is not told")
        self.assertLess(time.monotonic(), hung_up + LONG / 4)  # before a renewal would notice
        self.assertRegex(self.reasons[0], "^its connection ended")
        other = await self.locks.acquire(self.name, ttl=LONG, wait=SOON)
        self.assertIsNotNone(other)
        with self.assertRaises(LockLost):
            await lock.release()
        self.assertEqual(len(self.reasons), 1)
        self.assertEqual(self.look.holder(self.name), other.owner)
        await other.release()

    async def test_session_over_tls(self):
        locks = Locks(self.connect(**tls()))
        async with locks.lock(self.name, ttl=3, session=True) as lock:
            before = lock.valid_until
            await until(lambda: lock.valid_until > before, "it is not renewed")
        self.assertIsNone(self.look.holder(self.name))
        await self.end_of_a_sessions_connection(locks, lambda _: self.look.force(self.name))

    async def test_no_answer_until_the_validity_is_over(self):
        for session in (False, True):
            with self.subTest(session=session):
                link, told = Link(), []
                self.addCleanup(link.close)
                locks = Locks(self.connect(**link.address, **impatient(5)))
                lock = await locks.acquire(self.name, ttl=1, wait=LONG, session=session, on_lost=lambda why: told.append((time.monotonic(), why)))
                link.fall_silent()
                await until(lambda: told, "the loss is not told")
                self.assertGreaterEqual(told[0][0], lock.valid_until)
                self.assertRegex(told[0][1], "^its validity ended")
                with self.assertRaises(LockLost):
                    await lock.release()
                self.assertEqual(len(told), 1)
                link.close()
                await until(lambda: self.look.holder(self.name) is None, "it is not free")

    async def test_not_renewed(self):
        lock = await self.locks.acquire(self.name, ttl=0.5, wait=LONG, renew=False, on_lost=self.reasons.append)
        await until(lambda: self.reasons, "the loss is not told")
        self.assertEqual(self.reasons, ["its validity ended"])
        self.assertEqual(self.client.said("RENEW"), [])
        with self.assertRaises(LockLost):
            await lock.release()


class Resp2(Tests, unittest.IsolatedAsyncioTestCase):
    protocol = 2


class Resp3(Tests, unittest.IsolatedAsyncioTestCase):
    protocol = 3


class Scripted:
    """A client whose commands are answered as a test says: by a reply or an error, or "never", also by one that is "deaf" to a
    first cancellation. What is behind them is answered 1."""

    def __init__(self, *answers):
        self.answers, self.sent, self.asked_at = list(answers), [], []
        self.connection_pool = self
        self.connection_kwargs = {}

    async def execute_command(self, *command):
        self.sent.append(command)
        self.asked_at.append(time.monotonic())
        answer = self.answers.pop(0) if self.answers else 1
        if answer == "deaf":  # as redis-py may be, with a Python before 3.12
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            answer = "never"
        if answer == "never":
            try:
                await asyncio.Event().wait()
            finally:
                self.sent.append(("ended",))
        await asyncio.sleep(0.001)
        if isinstance(answer, BaseException):
            raise answer
        return granted(answer, command)

    def verbs(self):
        return [c[0] for c in self.sent]


GRANT = [7, b"me", 29_000, 1]


class AnswersTest(unittest.IsolatedAsyncioTestCase):
    async def test_tried_again_as_it_was(self):
        client = Scripted(redis.ConnectionError("gone"), redis.TimeoutError("late"), ResponseError("NOQUORUM 1 of 3"), ResponseError("DRAINING"), GRANT)
        lock = await Locks(client).acquire("job", wait=LONG)
        self.assertEqual(client.verbs(), ["LOCK"] * 5)
        self.assertEqual({c[4] for c in client.sent} | {c[6] for c in client.sent}, {lock.owner})
        client.answers = [redis.ConnectionError("gone"), ResponseError("NOQUORUM"), 1]
        await lock.release()
        self.assertEqual(client.sent[5:], [("UNLOCK", "job", lock.owner, "REQ", lock.owner)] * 3)

    async def test_unlock_in_an_outage(self):
        """It is sent again and again, but less often each time, and the last time when the lease is over."""
        client = Scripted([7, b"me", 3000, 1], *[ResponseError("NOQUORUM 0 of 3")] * 100)
        lock = await Locks(client).acquire("job", ttl=3.0)
        with self.assertRaisesRegex(ResponseError, "NOQUORUM"):
            await lock.release()
        self.assertEqual(client.verbs()[0], "LOCK")
        self.assertEqual(set(client.verbs()[1:]), {"UNLOCK"})
        self.assertLessEqual(len(client.sent), 1 + 7)  # after 0, 0.1, 0.3, 0.7, 1.5, 2.3 and 3 s
        self.assertGreaterEqual(client.asked_at[-1], lock.valid_until)

    async def test_lock_in_an_outage(self):
        """It is sent less and less often, and the last time when the wait is over."""
        client = Scripted(*[ResponseError("NOQUORUM 0 of 3")] * 100)
        began = time.monotonic()
        with self.assertRaisesRegex(ResponseError, "NOQUORUM"):
            await Locks(client).acquire("job", wait=3.0)
        asked = [at for at, verb in zip(client.asked_at, client.verbs()) if verb == "LOCK"]
        self.assertLessEqual(len(asked), 7)  # after 0, 0.1, 0.3, 0.7, 1.5, 2.3 and 3 s
        self.assertGreaterEqual(asked[-1], began + 3)

    async def test_given_back_in_an_outage(self):
        client = Scripted(*[ResponseError("NOQUORUM 0 of 3")] * 100)
        with self.assertRaises(ResponseError):
            await Locks(client).acquire("job", ttl=0.8)
        await until(lambda: client.asked_at[-1] >= client.asked_at[0] + 0.8, "it gives up before the lease is over")
        self.assertLessEqual(client.verbs().count("UNLOCK"), 5)

    async def test_what_cannot_succeed_is_not_tried_again(self):
        for error in (NoPermissionError("no"), ResponseError("MAXWAIT"), redis.AuthenticationError("wrong")):
            with self.subTest(error=repr(error)):
                client = Scripted(error)
                with self.assertRaises(type(error)):
                    await Locks(client).acquire("job", wait=LONG)
                self.assertEqual(client.verbs(), ["LOCK", "UNLOCK"])

    async def test_it_may_have_been_granted(self):
        client = Scripted(redis.ConnectionError("gone"), redis.ConnectionError("gone"))
        with self.assertRaises(redis.ConnectionError):
            await Locks(client).acquire("job")
        self.assertEqual(client.verbs(), ["LOCK", "UNLOCK", "UNLOCK"])

    async def test_an_answer_to_another_command(self):
        client = Scripted(1, 29_000, [7, b"another", 29_000, 1], GRANT)
        lock = await Locks(client).acquire("job", wait=LONG)
        self.assertEqual((client.verbs(), lock.fence), (["LOCK"] * 4, 7))
        await lock.release()

    async def test_the_loop_ends_while_it_gives_back(self):
        client = Scripted(GRANT, "never")

        async def main():
            lock = await Locks(client).acquire("job")
            releasing = asyncio.create_task(lock.release())
            await until(lambda: "UNLOCK" in client.verbs() and not releasing.done(), "it is not given back")

        await asyncio.to_thread(asyncio.run, main())
        self.assertEqual(client.verbs(), ["LOCK", "UNLOCK", "ended", "UNLOCK"])

    async def test_cancelled_before_the_answer(self):
        for how in ("never", "deaf"):
            with self.subTest(how):
                client = Scripted(how)
                task = asyncio.create_task(Locks(client).acquire("job"))
                await until(lambda: client.sent, "it does not ask")
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await asyncio.wait_for(asyncio.shield(task), LONG)
                self.assertEqual(client.verbs(), ["LOCK", "ended", "UNLOCK"])
                self.assertEqual(client.sent[2][2:], (client.sent[0][4], "REQ", client.sent[0][6]))

    async def test_given_back_while_a_renewal_is_under_way(self):
        for how in ("never", "deaf"):
            with self.subTest(how):
                client = Scripted(GRANT, how)
                lock = await Locks(client).acquire("job", ttl=0.03)
                await until(lambda: "RENEW" in client.verbs(), "it is not renewed")
                await lock.release()
                self.assertFalse(lock.lost)

    async def test_cancelled_while_it_gives_back(self):
        """The UNLOCK is sent on in the background."""
        client = Scripted(GRANT, *[redis.ConnectionError("gone")] * 3)
        lock = await Locks(client).acquire("job")
        task = asyncio.create_task(lock.release())
        await until(lambda: "UNLOCK" in client.verbs(), "it does not give back")
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await until(lambda: client.verbs().count("UNLOCK") == 4, "it gives up")

    async def test_valid_from_before_it_was_asked_for(self):
        client = Scripted(redis.ConnectionError("gone"), GRANT)
        lock = await Locks(client).acquire("job", wait=LONG)
        self.assertLessEqual(lock.valid_until, client.asked_at[1] + 29)
        self.assertGreater(lock.valid_until, client.asked_at[0] + 29)
        await lock.release()

    async def test_over_when_it_arrives(self):
        client = Scripted([7, b"me", 0, 0], 1, GRANT)
        lock = await Locks(client).acquire("job", wait=LONG)
        self.assertEqual(client.verbs(), ["LOCK", "UNLOCK", "LOCK"])
        first, given_back, second = client.sent
        self.assertEqual(given_back[2], first[4])
        self.assertNotEqual(second[4], first[4])
        self.assertEqual(lock.owner, second[4])
        await lock.release()

    async def test_lost_while_a_renewal_hangs(self):
        reasons = []
        await Locks(Scripted([7, b"me", 1000, 1], "never")).acquire("job", ttl=0.06, on_lost=reasons.append)
        await until(lambda: reasons, "the loss is not told")
        self.assertEqual(reasons, ["its validity ended"])

    async def test_released(self):
        lock = await Locks(Scripted(GRANT)).acquire("job", ttl=LONG)
        await lock.release()
        self.assertEqual((lock.remaining, lock.lost), (0, False))
        self.assertRaisesRegex(LockLost, "it was released", lock.check)

    async def test_client_of_the_other_kind(self):
        with self.assertRaisesRegex(TypeError, "there is lockproxy.Locks"):
            Locks(redis.Redis())

    async def test_lost_when_it_is_given_back(self):
        for said in ("LOCKLOST gone", "NOTOWNER another"):
            client = Scripted(GRANT, ResponseError(said))
            with self.assertRaisesRegex(LockLost, said):
                async with Locks(client).lock("job"):
                    pass


if __name__ == "__main__":
    unittest.main()
