"""When a lock is renewed and when it is lost, and what is sent: without a server and without a clock."""
import math
import time
import unittest

from redis.exceptions import AuthenticationError, ConnectionError, NoPermissionError, ResponseError, TimeoutError

from lockproxy._lease import Grant, Lease, Request, is_transient, longest_wait, pauses, several


def lease(ttl=30.0, asked=100.0, validity=29_000, renew=True, max_hold=None, session=False):
    return Lease(ttl, asked, validity, renew, max_hold, session)


class LeaseTest(unittest.TestCase):
    def test_validity_counts_from_when_the_question_was_sent(self):
        l = lease()
        self.assertEqual(l.until, 129)
        self.assertEqual(l.wake_at(), 110)
        self.assertFalse(l.next(109.9))
        self.assertTrue(l.next(110))
        l.answered(28_000, 115)
        self.assertEqual((l.until, l.wake_at()), (138, 120))

    def test_no_second_question_while_one_is_open(self):
        l = lease()
        self.assertTrue(l.next(110))
        self.assertFalse(l.next(125))
        self.assertEqual(l.wake_at(), 129)

    def test_errors_are_tried_again_until_the_validity_is_over(self):
        for error in (ConnectionError("gone"), TimeoutError("late"), ResponseError("NOQUORUM 1 of 3")):
            l = lease()
            self.assertTrue(l.next(110))
            l.answered(error, 112)
            self.assertIsNone(l.reason)
            self.assertTrue(112.1 <= l.wake_at() <= 112.125, l.wake_at())
            self.assertFalse(l.next(112))
            self.assertTrue(l.next(112.2))
            l.answered(error, 128.95)
            self.assertFalse(l.next(129))
            self.assertEqual(l.reason, f"its validity ended, it could not be renewed: {error}")

    def test_in_an_outage_it_is_renewed_less_and_less_often(self):
        """and more often again towards the end, so that a try comes while the lease can be saved; a renewal begins anew."""
        l, now, least = lease(), 110.0, 0.1
        while l.until - now > 0.3:
            self.assertTrue(l.next(now))
            l.answered(ResponseError("NOQUORUM 1 of 3"), now)
            half = max(0.1, (l.until - now) / 2)
            pause = l.wake_at() - now
            self.assertTrue(min(least, half) - 1e-9 <= pause <= min(1.25 * least, half) + 1e-9, f"{pause} s at {now}, not {least}")
            now, least = l.wake_at(), min(2 * least, 0.8)
        self.assertGreater(l.until - now, 0.1)
        self.assertTrue(l.next(now))
        l.answered(29_000, now)
        self.assertTrue(l.next(now := l.wake_at()))
        l.answered(ConnectionError("gone"), now)
        self.assertLess(l.wake_at() - now, 0.13)

    def test_an_answer_after_the_end_does_not_bring_it_back(self):
        l = lease()
        self.assertTrue(l.next(110))
        l.answered(29_000, 130)
        self.assertEqual(l.until, 129)
        self.assertFalse(l.next(130))
        self.assertEqual(l.reason, "its validity ended")

    def test_lost(self):
        for said in ("LOCKLOST this owner no longer has the lock", "NOTOWNER another owner holds the lock for 5ms"):
            l = lease()
            self.assertTrue(l.next(110))
            l.answered(ResponseError(said), 111)
            self.assertEqual(l.reason, said)

    def test_the_end_of_a_sessions_connection_is_the_loss(self):
        l = lease(session=True)
        l.answered(ConnectionError("closed by server"), 101)
        self.assertEqual(l.reason, "its connection ended: closed by server")
        l = lease(session=True)
        self.assertTrue(l.next(110))
        l.answered(ResponseError("NOQUORUM 1 of 3"), 111)
        self.assertIsNone(l.reason)

    def test_a_session_is_not_held_for_longer_than_its_silence_is_noticed(self):
        l = lease(ttl=60, validity=59_000, session=True)
        self.assertEqual(l.wake_at(), 104)
        self.assertTrue(l.next(104))
        self.assertEqual(l.wake_at(), 112)
        l.answered(59_000, 105)
        self.assertEqual(l.until, 116)

    def test_max_hold(self):
        l = lease(max_hold=15)
        self.assertTrue(l.next(110))
        l.answered(29_000, 110.5)
        self.assertEqual(l.wake_at(), 139)
        self.assertFalse(l.next(130))
        self.assertFalse(l.next(139))
        self.assertEqual(l.reason, "its validity ended, it was held for max_hold")

    def test_an_hour_is_the_longest(self):
        l, now = lease(), 100.0
        while l.wake_at() < l.until:
            now = l.wake_at()
            self.assertTrue(l.next(now))
            l.answered(29_000, now + 1)
        self.assertEqual(now, 3700)

    def test_without_renewal(self):
        l = lease(renew=False)
        self.assertEqual(l.wake_at(), 129)
        self.assertFalse(l.next(128))
        self.assertIsNone(l.reason)
        self.assertFalse(l.next(129))
        self.assertEqual(l.reason, "its validity ended")


class RequestTest(unittest.TestCase):
    def test_what_is_sent(self):
        r = Request(["job"], 1.5, False, None, "")
        self.assertRegex(r.owner, "^[0-9a-f]{32}$")
        self.assertEqual(r.lock(0), ["LOCK", "job", 1500, "OWNER", r.owner, "REQ", r.owner])
        self.assertEqual(r.lock(0.0001)[-2:], ["WAIT", 1])
        self.assertEqual(r.renew({"job": 7}), ["RENEW", "job", 1500, r.owner, "FENCE", 7])
        self.assertEqual(r.unlock(), ["UNLOCK", "job", r.owner, "REQ", r.owner])

    def test_max_hold_is_the_proxys_business_in_a_session_alone(self):
        self.assertEqual(Request(["job"], 1, False, 60, "me").lock(0)[-2:], ["INFO", "me"])
        self.assertEqual(Request(["job"], 1, True, None, "").lock(2)[-5:], ["SESSION", "ONLOSS", "CLOSE", "WAIT", 2000])
        self.assertEqual(Request(["job"], 1, True, math.inf, "").lock(0)[-3:], ["SESSION", "ONLOSS", "CLOSE"])
        self.assertEqual(Request(["job"], 1, True, 60, "").lock(0)[-2:], ["MAXHOLD", 60000])

    def test_a_reader_says_so_each_time(self):
        r = Request(["job"], 1.5, False, None, "", True)
        self.assertEqual(r.lock(2), ["LOCK", "job", 1500, "OWNER", r.owner, "REQ", r.owner, "SHARED", "WAIT", 2000])
        self.assertEqual(r.renew({"job": 7}), ["RENEW", "job", 1500, r.owner, "SHARED", "FENCE", 7])
        self.assertEqual(r.unlock(), ["UNLOCK", "job", r.owner, "SHARED", "REQ", r.owner])

    def test_a_permit_is_renewed_and_given_back_as_a_readers_lock(self):
        r = Request(["job"], 1.5, False, None, "", permits=3)
        self.assertEqual(r.lock(2), ["LOCK", "job", 1500, "OWNER", r.owner, "REQ", r.owner, "PERMITS", 3, "WAIT", 2000])
        self.assertEqual(r.renew({"job": 7}), ["RENEW", "job", 1500, r.owner, "SHARED", "FENCE", 7])
        self.assertEqual(r.unlock(), ["UNLOCK", "job", r.owner, "SHARED", "REQ", r.owner])

    def test_several_names(self):
        r = Request(["b", b"a"], 1.5, False, None, "", True)
        self.assertEqual(r.lock(2), ["LOCKALL", 2, "b", b"a", 1500, "OWNER", r.owner, "REQ", r.owner, "SHARED", "WAIT", 2000])
        self.assertEqual(r.renew({"b": 7, b"a": 8}), ["RENEWALL", 2, "b", b"a", 1500, r.owner, "SHARED"])
        self.assertEqual(r.unlock(), ["UNLOCKALL", 2, "b", b"a", r.owner, "SHARED", "REQ", r.owner])
        self.assertEqual(Request([], 1.5, False, None, "").lock(0)[:3], ["LOCKALL", 0, 1500])

    def test_what_is_granted(self):
        r = Request(["b", b"a"], 1.5, False, None, "")
        validity, fences = r.granted([1400, r.owner.encode(), [b"b", 7, 1], [b"a", 8, 1]])
        self.assertEqual((validity, fences), (1400, {"b": 7, b"a": 8}))
        grant = Grant(r, fences)
        self.assertEqual((grant.names, grant.owner, grant.fences), (["b", b"a"], r.owner, fences))
        for only in ("name", "fence"):
            with self.assertRaises(ValueError):
                getattr(grant, only)
        one = Request(["job"], 1.5, False, None, "")
        validity, fences = one.granted([7, one.owner, 1400, 1])
        grant = Grant(one, fences)
        self.assertEqual((validity, grant.name, grant.fence, grant.fences), (1400, "job", 7, {"job": 7}))

    def test_one_name_is_not_several(self):
        for name in ("ab", b"ab"):
            self.assertRaises(TypeError, several, name)
        self.assertEqual(several(n for n in "ab"), ["a", "b"])

    def test_an_owner_is_used_once(self):
        self.assertNotEqual(Request(["job"], 1, False, None, "").owner, Request(["job"], 1, False, None, "").owner)


class ErrorsTest(unittest.TestCase):
    def test_transient(self):
        for error, want in (
            (ConnectionError(), True), (TimeoutError(), True),
            (ResponseError("NOQUORUM"), True), (ResponseError("DRAINING"), True), (ResponseError("UPSTREAMDOWN"), True),
            (ResponseError("MAXWAIT"), False), (ResponseError("LOCKLOST"), False),
            (NoPermissionError(), False), (AuthenticationError(), False),
        ):
            with self.subTest(error=repr(error)):
                self.assertEqual(is_transient(error), want)

    def test_pauses(self):
        waits = pauses(math.inf)
        for least in (0.1, 0.2, 0.4, 0.8, 0.8, 0.8):
            wait = next(waits)
            self.assertTrue(least <= wait <= 1.25 * least, wait)
        self.assertLessEqual(next(pauses(time.monotonic() + 0.05)), 0.05)
        self.assertEqual(next(pauses(time.monotonic() - 1)), 0)
        self.assertGreater(len({next(pauses(math.inf)) for _ in range(20)}), 1)

    def test_wait_is_shorter_than_the_read_timeout(self):
        class Client:
            class connection_pool:
                connection_kwargs = {}

        for timeout, want in ((None, 5), (0.2, 0.1), (4, 2), (60, 5)):
            Client.connection_pool.connection_kwargs = {"socket_timeout": timeout}
            self.assertEqual(longest_wait(Client), want)
        Client.connection_pool.connection_kwargs = {}  # of a redis-py whose default may be 5 s
        self.assertEqual(longest_wait(Client), 2.5)


if __name__ == "__main__":
    unittest.main()
