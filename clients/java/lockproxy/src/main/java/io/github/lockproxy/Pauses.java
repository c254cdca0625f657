package io.github.lockproxy;

import java.util.concurrent.ThreadLocalRandom;

/**
 * For how many ns to wait before a command that failed is sent again: longer each time, up to a second. In an outage there may be many of these,
 * and each keeps the lock nodes busy.
 */
final class Pauses {
    static final long LEAST = 100_000_000;
    private static final long MOST = 800_000_000; // and up to a quarter more

    private long next = LEAST;

    /** The next pause, at random a little longer, so that clients which failed together do not come back together. */
    long next() {
        long pause = next;
        next = Math.min(2 * pause, MOST);
        return pause + ThreadLocalRandom.current().nextLong(pause / 4);
    }

    /** The same for RENEW of a lease that is over in so many ns: no more than half of that, so that a try comes while it can be saved. */
    long next(long left) {
        return Math.min(next(), Math.max(LEAST, left / 2));
    }

    void reset() {
        next = LEAST;
    }
}
