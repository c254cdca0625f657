package io.github.lockproxy;

import java.time.Duration;
import java.util.function.Consumer;

/**
 * How a lock is taken and kept.
 *
 * @param ttl for how long the lock outlives a holder that has died; at most the proxy's {@code --max-ttl}
 * @param waitTime how long to stand in line while another has it; 0 asks once
 * @param renew whether it is renewed at a third of the ttl until it is released; else it ends by itself
 * @param maxHold it is not held for longer, so that a program that is stuck does not hold it for ever; null: an hour
 * @param session whether it is bound to a connection of its own, and free milliseconds after the holder has died
 * @param onLost is called once, in a thread of its own, with the reason when the lock is lost; may be null
 * @param info what LOCKCTL and the page show beside the owner; may be null
 * @param shared for who only reads: others may read at the same time, and nobody has the lock for itself; all proxies must know it
 * @param permits for who shares the lock with a limit: at most so many have it at the same time, of those that say so; 0: not so. Not with shared; all
 *     proxies must know it
 */
public record LockOptions(Duration ttl, Duration waitTime, boolean renew, Duration maxHold, boolean session, Consumer<String> onLost, String info, boolean shared, int permits) {
    /** A ttl of 30 s, no wait. */
    public static final LockOptions DEFAULT = new LockOptions(Duration.ofSeconds(30), Duration.ZERO, true, null, false, null, null, false, 0);

    public LockOptions {
        if (ttl.isNegative() || ttl.isZero()) throw new IllegalArgumentException("a ttl of " + ttl);
        if (waitTime.isNegative()) throw new IllegalArgumentException("a waitTime of " + waitTime);
        if (maxHold != null && (maxHold.isNegative() || maxHold.isZero())) throw new IllegalArgumentException("a maxHold of " + maxHold);
        if (permits < 0) throw new IllegalArgumentException(permits + " permits");
    }

    public static LockOptions of(Duration ttl, Duration waitTime) {
        return DEFAULT.withTtl(ttl).withWaitTime(waitTime);
    }

    public LockOptions withTtl(Duration ttl) {
        return new LockOptions(ttl, waitTime, renew, maxHold, session, onLost, info, shared, permits);
    }

    public LockOptions withWaitTime(Duration waitTime) {
        return new LockOptions(ttl, waitTime, renew, maxHold, session, onLost, info, shared, permits);
    }

    public LockOptions withRenew(boolean renew) {
        return new LockOptions(ttl, waitTime, renew, maxHold, session, onLost, info, shared, permits);
    }

    public LockOptions withMaxHold(Duration maxHold) {
        return new LockOptions(ttl, waitTime, renew, maxHold, session, onLost, info, shared, permits);
    }

    public LockOptions withSession(boolean session) {
        return new LockOptions(ttl, waitTime, renew, maxHold, session, onLost, info, shared, permits);
    }

    public LockOptions withOnLost(Consumer<String> onLost) {
        return new LockOptions(ttl, waitTime, renew, maxHold, session, onLost, info, shared, permits);
    }

    public LockOptions withInfo(String info) {
        return new LockOptions(ttl, waitTime, renew, maxHold, session, onLost, info, shared, permits);
    }

    public LockOptions withShared(boolean shared) {
        return new LockOptions(ttl, waitTime, renew, maxHold, session, onLost, info, shared, permits);
    }

    public LockOptions withPermits(int permits) {
        return new LockOptions(ttl, waitTime, renew, maxHold, session, onLost, info, shared, permits);
    }
}
