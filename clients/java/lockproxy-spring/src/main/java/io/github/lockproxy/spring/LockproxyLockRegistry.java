package io.github.lockproxy.spring;

import io.github.lockproxy.LockLostException;
import io.github.lockproxy.LockOptions;
import io.github.lockproxy.Locks;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import org.springframework.integration.support.locks.LockRegistry;

/**
 * A registry of Spring Integration whose locks are those of lockproxy. A lock belongs to a thread, which may take it again while it has it. It is renewed until it is
 * unlocked; nothing is kept of a lock that nobody has or waits for.
 *
 * <p>When a lock was lost, {@code tryLock} of its holder answers false and the thread does not have it any more; {@code unlock} throws
 * ConcurrentModificationException, as the registries of Spring do, since somebody else may have been in at the same time.
 */
public final class LockproxyLockRegistry implements LockRegistry {
    private static final Duration FOR_EVER = Duration.ofDays(36_500);

    private final Locks locks;
    private final String prefix;
    private final LockOptions options;
    private final Map<String, Local> locals = new ConcurrentHashMap<>();

    /** Locks whose names are spring:KEY, with a ttl of 30 s. */
    public LockproxyLockRegistry(Locks locks) {
        this(locks, "spring:", LockOptions.DEFAULT);
    }

    /** Locks whose names have that prefix. Their wait is said by their users, not by the options. */
    public LockproxyLockRegistry(Locks locks, String prefix, LockOptions options) {
        this.locks = locks;
        this.prefix = prefix;
        this.options = options;
    }

    @Override
    public Lock obtain(Object key) {
        if (!(key instanceof String name)) throw new IllegalArgumentException("a key must be a string: " + key);
        return new Handle(prefix + name);
    }

    /** What the threads of this process have of a lock. Who has it, has or takes the lock of lockproxy. */
    private static final class Local extends ReentrantLock {
        private static final long serialVersionUID = 1;

        private int users; // holds, and threads that wait; changed by compute of the map alone
        private transient io.github.lockproxy.Lock grant;
    }

    private final class Handle implements Lock {
        private final String name;

        Handle(String name) {
            this.name = name;
        }

        private Local enter() {
            return locals.compute(name, (n, local) -> {
                Local l = local == null ? new Local() : local;
                l.users++;
                return l;
            });
        }

        private void leave() {
            locals.compute(name, (n, local) -> --local.users == 0 ? null : local);
        }

        @Override
        public void lock() {
            boolean interrupted = false;
            try {
                while (true) {
                    try {
                        lockInterruptibly();
                        return;
                    } catch (InterruptedException e) {
                        interrupted = true;
                    }
                }
            } finally {
                if (interrupted) Thread.currentThread().interrupt();
            }
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            if (!tryLock(FOR_EVER)) throw new ConcurrentModificationException("the lock \"" + name + "\" was lost while this thread had it");
        }

        @Override
        public boolean tryLock() {
            try {
                return tryLock(Duration.ZERO);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return false;
            }
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            return tryLock(Duration.ofNanos(Math.max(0, unit.toNanos(time))));
        }

        private boolean tryLock(Duration wait) throws InterruptedException {
            long end = System.nanoTime() + wait.toNanos();
            Local local = enter();
            boolean has = false;
            try {
                if (!local.tryLock(wait.toNanos(), TimeUnit.NANOSECONDS)) return false;
                try {
                    has = local.getHoldCount() > 1 ? stillHas(local) : take(local, end - System.nanoTime());
                } finally {
                    if (!has) local.unlock();
                }
                return has;
            } finally {
                if (!has) leave();
            }
        }

        private boolean take(Local local, long wait) throws InterruptedException {
            local.grant = locks.tryAcquire(name, options.withWaitTime(Duration.ofNanos(Math.max(0, wait))));
            return local.grant != null;
        }

        /** For a thread that has taken the lock before, and whose holds end if it was lost: it may take it anew. */
        private boolean stillHas(Local local) {
            if (!local.grant.isLost()) return true;
            while (local.getHoldCount() > 1) {
                local.unlock();
                leave();
            }
            return false;
        }

        @Override
        public void unlock() {
            Local local = locals.get(name);
            if (local == null || !local.isHeldByCurrentThread()) {
                throw new IllegalMonitorStateException("this thread does not have the lock \"" + name + "\"");
            }
            try {
                if (local.getHoldCount() == 1) local.grant.release();
            } catch (LockLostException e) {
                throw new ConcurrentModificationException(e.getMessage(), e);
            } finally {
                local.unlock();
                leave();
            }
        }

        @Override
        public Condition newCondition() {
            throw new UnsupportedOperationException("a lock of lockproxy has no conditions");
        }
    }
}
