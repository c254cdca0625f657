package io.github.lockproxy.shedlock;

import io.github.lockproxy.Lock;
import io.github.lockproxy.LockLostException;
import io.github.lockproxy.LockOptions;
import io.github.lockproxy.Locks;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * A provider of ShedLock whose locks are those of lockproxy. A lock is renewed while its task runs, for lockAtMostFor at most; when the program has died it is free after
 * the ttl, however long lockAtMostFor is. It is kept for lockAtLeastFor as long as the program lives, and for the ttl in any case. It can be extended unless it is a session.
 */
public final class LockproxyLockProvider implements ExtensibleLockProvider {
    private static final System.Logger LOG = System.getLogger(LockproxyLockProvider.class.getName());

    private final Locks locks;
    private final String prefix;
    private final LockOptions options;

    /** Locks whose names are shedlock:NAME, with a ttl of 30 s. */
    public LockproxyLockProvider(Locks locks) {
        this(locks, "shedlock:", LockOptions.DEFAULT);
    }

    /** Locks whose names have that prefix. For how long they are held is said by their tasks, not by the options, and they do not wait. */
    public LockproxyLockProvider(Locks locks, String prefix, LockOptions options) {
        this.locks = locks;
        this.prefix = prefix;
        this.options = options.withWaitTime(Duration.ZERO);
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        try {
            Lock lock = locks.tryAcquire(prefix + configuration.getName(), options.withMaxHold(configuration.getLockAtMostFor()));
            return lock == null ? Optional.empty() : Optional.of(new Held(configuration, lock));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        }
    }

    private static final class Held extends AbstractSimpleLock {
        private final Lock lock;

        Held(LockConfiguration configuration, Lock lock) {
            super(configuration);
            this.lock = lock;
        }

        @Override
        protected void doUnlock() {
            Duration left = Duration.between(ClockProvider.now(), lockConfiguration.getLockAtLeastUntil());
            try {
                if (left.isNegative() || left.isZero()) lock.release();
                else lock.releaseAfter(left);
            } catch (LockLostException e) { // it is free, or another's
                LOG.log(System.Logger.Level.WARNING, "the task may have run twice at the same time: " + e.getMessage());
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration configuration) {
            try {
                lock.extend(configuration.getLockAtMostFor());
                return Optional.of(new Held(configuration, lock));
            } catch (LockLostException | UnsupportedOperationException e) {
                return Optional.empty();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return Optional.empty();
            }
        }
    }
}
