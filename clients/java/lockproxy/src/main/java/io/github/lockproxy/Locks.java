package io.github.lockproxy;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/**
 * Takes locks of a lockproxy, on a client that the application has already: {@link JedisLocks} and {@link LettuceLocks} make one. It is safe for
 * threads, and one is enough for a program.
 */
public final class Locks implements AutoCloseable {
    private static final long LONGEST_WAIT = 5_000_000_000L; // in one LOCK
    static final long SHORTEST_ANSWER = 1_000_000_000; // on a connection of its own, or to the last UNLOCK

    final Client client;
    private final Idle idle;

    Locks(Client client) {
        this.client = client;
        this.idle = new Idle(client::open);
    }

    /** {@link #acquire(String, LockOptions)} with these options and no others. */
    public Lock acquire(String name, Duration ttl, Duration waitTime) throws InterruptedException {
        return acquire(name, LockOptions.of(ttl, waitTime));
    }

    /**
     * Takes the lock. Who wants it while another has it waits in line.
     *
     * @throws LockNotAcquiredException if another still has it when the wait is over
     * @throws LockException if nobody can tell who has it
     * @throws InterruptedException if the thread is interrupted; then it leaves the line
     */
    public Lock acquire(String name, LockOptions options) throws InterruptedException {
        return acquireAll(List.of(name), options);
    }

    /** As {@link #acquire(String, LockOptions)}, but returns null if another still has the lock when the wait is over. */
    public Lock tryAcquire(String name, LockOptions options) throws InterruptedException {
        return tryAcquireAll(List.of(name), options);
    }

    /**
     * Takes up to 64 names at once, all of them or none. What waits holds none of them, so that their order does not matter. They are renewed and
     * released together, and the lock is lost when one of them is. It takes no permits. All proxies must know LOCKALL. It throws what
     * {@link #acquire(String, LockOptions)} does.
     */
    public Lock acquireAll(List<String> names, LockOptions options) throws InterruptedException {
        Lock lock = tryAcquireAll(names, options);
        if (lock == null) throw new LockNotAcquiredException(names);
        return lock;
    }

    /** As {@link #acquireAll(List, LockOptions)}, but returns null if another still has one of the names when the wait is over. */
    public Lock tryAcquireAll(List<String> names, LockOptions options) throws InterruptedException {
        return new Attempt(List.copyOf(names), options).take();
    }

    /** Ends the connections that no lock is bound to. They are made anew when they are needed. */
    @Override
    public void close() {
        idle.close();
        client.close();
    }

    /** One call of tryAcquireAll. */
    private final class Attempt {
        private final LockOptions options;
        private final long end;
        private Request request;
        private Client.Conn own; // null: none
        private CompletableFuture<Object> asking = CompletableFuture.completedFuture(null);
        private boolean unsure; // a LOCK was not answered: it may have been granted

        Attempt(List<String> names, LockOptions options) {
            this.options = options;
            this.end = System.nanoTime() + Request.ns(options.waitTime());
            this.request = new Request(names, options);
        }

        Lock take() throws InterruptedException {
            Lock lock = null;
            var pauses = new Pauses();
            try {
                for (boolean first = true;; first = false) {
                    long began = System.nanoTime();
                    try {
                        if (!first || options.session()) connect();
                        long asked = System.nanoTime();
                        asking = ask();
                        Object grant = asking.get();
                        if (grant != null) lock = granted(asked, grant);
                        if (lock != null) return lock;
                        if (System.nanoTime() - end >= 0) {
                            if (grant == null) return null;
                            throw new LockException(request.called("LOCK") + ": the lease was over when the answer came", null);
                        }
                        pauses.reset();
                    } catch (ExecutionException e) {
                        closeOwn();
                        boolean again = Client.isTransient(e.getCause());
                        unsure |= again || Client.isLoss(e.getCause()); // or several were granted, and lost some before that was answered
                        // The connections that the client had may have ended since they were used last.
                        boolean stale = first && e.getCause() instanceof Client.Unanswered && System.nanoTime() - began < client.timeout() / 2;
                        if (!again || System.nanoTime() - end >= 0 && !stale) throw Client.failure(request.called("LOCK"), e.getCause());
                        TimeUnit.NANOSECONDS.sleep(stale ? Pauses.LEAST : Math.min(pauses.next(), end - System.nanoTime()));
                    }
                }
            } catch (InterruptedException e) {
                unsure = true;
                throw e;
            } finally {
                if (lock == null && (unsure || options.session())) closeOwn();
                if (lock == null && unsure) giveBack();
                if (own != null && !options.session()) idle.put(own);
            }
        }

        /** Has a connection of its own. Only LOCK is sent over it, so it may wait, and it knows from when on a lease counts. */
        private void connect() throws InterruptedException, ExecutionException {
            if (own == null) own = options.session() ? client.open() : idle.take();
            own.made().get();
        }

        /** Sends LOCK: over its own connection, else as every other command, and then it does not wait: that would hold up what is behind it. */
        private CompletableFuture<Object> ask() {
            if (own == null) return client.send(request.lock(0), client.timeout());
            long wait = Math.max(0, Math.min(end - System.nanoTime(), Math.min(client.timeout() / 2, LONGEST_WAIT)));
            return own.send(request.lock(wait), wait + Math.max(client.timeout(), SHORTEST_ANSWER));
        }

        /** The lock that has been granted; null: it was over when the answer came. */
        private Lock granted(long asked, Object grant) {
            Request.Grant granted = request.grant(grant);
            if (granted == null) throw new LockException("no answer of a lockproxy to LOCK: " + grant, null);
            var lock = new Lock(client, options.session() ? own : null, request, asked, granted);
            if (!lock.isLost()) {
                lock.start();
                return lock;
            }
            giveBack();
            request = new Request(request.names, options); // the other has been used up
            return null;
        }

        /** Sends UNLOCK, when LOCK is under way no more, until it is answered: in the background if that takes long. */
        private void giveBack() {
            Request r = request;
            long until = System.nanoTime() + r.ttl;
            Lock.settled(asking.handle((a, e) -> a).thenCompose(a -> r.unlock(client, until)), SHORTEST_ANSWER);
        }

        private void closeOwn() {
            if (own != null) own.close();
            own = null;
        }
    }
}
