package io.github.lockproxy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

/** When a lock is renewed, and when it is lost, in ns after it was asked for. */
class LeaseTest {
    private static final long S = 1_000_000_000;
    private static final long T0 = Long.MAX_VALUE - 5 * S; // such clocks may turn over
    private static final LockOptions OPTIONS = LockOptions.DEFAULT;

    private static Lease lease(LockOptions options, long validity) {
        return new Lease(new Request(List.of("job"), options), T0, validity);
    }

    @Test
    void isRenewedAtAThirdOfTheTtl() {
        Lease l = lease(OPTIONS, 29_700);
        assertEquals(10 * S, l.wakeAt() - T0);
        assertEquals(0, l.next(T0 + 10 * S - 1));
        assertEquals(30 * S, l.next(T0 + 10 * S));
        assertEquals(0, l.next(T0 + 11 * S), "one at a time");
        assertEquals(29_700_000_000L, l.wakeAt() - T0, "while one is under way it wakes for the end");
        l.answered(T0 + 10 * S, 29_700L, null, T0 + 12 * S);
        assertEquals(39_700_000_000L, l.until() - T0, "counted from when it was sent");
        assertEquals(20 * S, l.wakeAt() - T0);
    }

    @Test
    void triesAgainUntilItIsOver() {
        Lease l = lease(OPTIONS, 29_700);
        l.next(T0 + 10 * S);
        l.answered(T0 + 10 * S, null, new Client.Refused("NOQUORUM 1 of 3", null), T0 + 11 * S);
        assertTrue(11_100_000_000L <= l.wakeAt() - T0 && l.wakeAt() - T0 <= 11_125_000_000L, l.wakeAt() - T0 + "");
        assertEquals(30 * S, l.next(T0 + 12 * S));
        l.answered(T0 + 12 * S, null, new Client.Unanswered("gone", null), T0 + 13 * S);
        assertNull(l.reason());
        l.next(T0 + 29_700_000_000L);
        assertEquals("its validity ended, it could not be renewed: gone", l.reason());
    }

    /** And more often again towards the end, so that a try comes while the lease can be saved. A renewal begins anew. */
    @Test
    void isRenewedLessAndLessOftenInAnOutage() {
        Lease l = lease(OPTIONS, 29_700);
        long now = T0 + 10 * S;
        for (long least = S / 10; l.until() - now > 3 * S / 10; least = Math.min(2 * least, 8 * S / 10)) {
            assertEquals(30 * S, l.next(now));
            l.answered(now, null, new Client.Refused("NOQUORUM 1 of 3", null), now);
            long half = Math.max(S / 10, (l.until() - now) / 2);
            long pause = l.wakeAt() - now;
            assertTrue(Math.min(least, half) <= pause && pause <= Math.min(least + least / 4, half), pause + " ns, not " + least);
            now = l.wakeAt();
        }
        assertTrue(l.until() - now > S / 10, "no try comes while it can be saved");
        assertEquals(30 * S, l.next(now));
        l.answered(now, 29_700L, null, now);
        now = l.wakeAt();
        assertEquals(30 * S, l.next(now));
        l.answered(now, null, new Client.Unanswered("gone", null), now);
        assertTrue(l.wakeAt() - now < 13 * S / 100, "a renewal does not begin anew");
    }

    @Test
    void anAnswerThatComesTooLateIsNone() {
        Lease l = lease(OPTIONS, 1_000);
        l.answered(T0, 29_700L, null, T0 + S);
        l.next(T0 + S);
        assertEquals("its validity ended", l.reason());
    }

    @Test
    void isLostWhenAProxySaysSo() {
        for (String answer : new String[] {"LOCKLOST it is", "NOTOWNER another"}) {
            Lease l = lease(OPTIONS, 29_700);
            l.next(T0 + 10 * S);
            l.answered(T0 + 10 * S, null, new Client.Refused(answer, null), T0 + 11 * S);
            assertEquals(answer, l.reason());
        }
    }

    @Test
    void isNotRenewedIfItIsNotToBe() {
        Lease l = lease(OPTIONS.withRenew(false), 29_700);
        assertEquals(0, l.next(T0 + 20 * S));
        assertEquals(l.until(), l.wakeAt());
    }

    @Test
    void isNotHeldForLongerThanMaxHold() {
        Lease l = lease(OPTIONS.withMaxHold(Duration.ofSeconds(45)), 29_700);
        assertEquals(30 * S, l.next(T0 + 10 * S));
        l.answered(T0 + 10 * S, 29_700L, null, T0 + 10 * S);
        assertEquals(25 * S, l.next(T0 + 20 * S), "no longer than to the end");
        l.answered(T0 + 20 * S, 24_700L, null, T0 + 20 * S);
        assertEquals(0, l.next(T0 + 40 * S), "nothing is to be gained");
        l.next(T0 + 45 * S);
        assertEquals("its validity ended, it was held for maxHold", l.reason());
        assertEquals(5 * S, lease(OPTIONS.withMaxHold(Duration.ofSeconds(5)), 29_700).until() - T0);
    }

    @Test
    void maxHoldIsAnHour() {
        Lease l = lease(OPTIONS, 29_700);
        long now = 10;
        for (; l.reason() == null; now++) {
            if (l.next(T0 + now * S) > 0) l.answered(T0 + now * S, 29_700L, null, T0 + now * S);
        }
        assertTrue(now > 3590 && now < 3605, "after " + now);
    }

    @Test
    void isExtended() {
        Lease l = lease(OPTIONS.withMaxHold(Duration.ofSeconds(20)), 19_700);
        assertEquals(30 * S, l.hold(T0 + 5 * S, 60 * S));
        l.answered(T0 + 5 * S, 29_700L, null, T0 + 5 * S);
        assertEquals(34_700_000_000L, l.until() - T0);
        assertEquals(30 * S, l.next(T0 + 15 * S), "it is renewed again");
        assertEquals(2 * S, l.hold(T0 + 16 * S, 2 * S));
        l.answered(T0 + 16 * S, 1_900L, null, T0 + 16 * S);
        assertEquals(17_900_000_000L, l.until() - T0);
        assertEquals(0, l.next(T0 + 17 * S));
    }

    @Test
    void aSessionHearsFromItsProxyBeforeThatGivesItUp() {
        Lease l = lease(OPTIONS.withTtl(Duration.ofMinutes(1)).withSession(true), 59_700);
        assertEquals(12 * S, l.until() - T0);
        assertEquals(4 * S, l.wakeAt() - T0);
        assertEquals(60 * S, l.next(T0 + 4 * S));
    }
}
