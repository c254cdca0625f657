package io.github.lockproxy;

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/** A lock that we have until it is released or lost. It is safe for threads: any may release it. */
public final class Lock implements AutoCloseable {
    private static final long PATIENCE_OF_THE_INTERRUPTED = 1_000_000_000;

    private final Client client;
    private final Client.Conn own; // of the session; null: none
    private final Request request;
    private final Map<String, Long> fences;
    private final Lease lease;
    private boolean released;
    private boolean told; // that it is lost
    private CompletableFuture<Void> timer;

    Lock(Client client, Client.Conn own, Request request, long asked, Request.Grant grant) {
        this.client = client;
        this.own = own;
        this.request = request;
        this.fences = grant.fences();
        this.lease = new Lease(request, asked, grant.validity());
    }

    void start() {
        keep();
        if (own != null) own.closed().thenAcceptAsync(why -> lose("its connection ended: " + why), Background.THREADS);
    }

    /** @throws IllegalStateException if there are several, see {@link #names()} */
    public String name() {
        return only(request.names);
    }

    public List<String> names() {
        return request.names;
    }

    private static <T> T only(Collection<T> values) {
        if (values.size() != 1) throw new IllegalStateException("a lock of several names has names() and fences()");
        return values.iterator().next();
    }

    /** A text that is of this acquisition alone, by which lockproxy knows us. */
    public String owner() {
        return request.owner;
    }

    /**
     * A number that is larger with every new holder of the name.
     *
     * @throws IllegalStateException if there are several, each with a fence of its own: see {@link #fences()}
     */
    public long fence() {
        return only(fences.values());
    }

    /** The fence of each name. */
    public Map<String, Long> fences() {
        return fences;
    }

    /** Up to which time of {@link System#nanoTime()} it is safe to work; later after each renewal. */
    public synchronized long validUntil() {
        return lease.until();
    }

    /** For how long it is safe to work, if the lock is not renewed; zero when it was lost or released. */
    public synchronized Duration remaining() {
        return lease.reason() != null ? Duration.ZERO : Duration.ofNanos(Math.max(0, lease.until() - System.nanoTime()));
    }

    public synchronized boolean isLost() {
        return remaining().isZero() && !Lease.RELEASED.equals(lease.reason());
    }

    /** Does nothing unless the lock is lost, or was released. */
    public synchronized void check() throws LockLostException {
        if (remaining().isZero()) throw lost();
    }

    private LockLostException lost() {
        return new LockLostException(request.names, lease.reason() != null ? lease.reason() : Lease.ENDED);
    }

    /**
     * Has the lock held for so long from now, at most, instead of maxHold.
     *
     * @throws UnsupportedOperationException for a session with a maxHold, which lockproxy ends then
     */
    public void extend(Duration maxHold) throws InterruptedException {
        if (request.options.session() && request.options.maxHold() != null) throw new UnsupportedOperationException("a session with a maxHold");
        for (var pauses = new Pauses();;) {
            CompletableFuture<Object> answer;
            long asked = System.nanoTime();
            synchronized (this) {
                check();
                answer = renew(lease.hold(asked, Request.ns(maxHold)), asked);
            }
            try {
                answer.get();
                return;
            } catch (ExecutionException e) {
                check();
                if (!Client.isTransient(e.getCause())) throw Client.failure(request.called("RENEW"), e.getCause());
            }
            TimeUnit.NANOSECONDS.sleep(pauses.next(remaining().toNanos()));
        }
    }

    /** Gives the lock back. A second call does nothing. */
    @Override
    public void close() throws LockLostException {
        release();
    }

    /**
     * Gives the lock back, and tries that until the lease is over. A second call does nothing. If the thread is interrupted
     * it goes on in the background, and the thread remains interrupted.
     *
     * @throws LockLostException if the lock was lost before
     */
    public void release() throws LockLostException {
        LockLostException lost;
        synchronized (this) {
            if (released) return;
            released = true;
            if (timer != null) timer.cancel(false);
            lost = isLost() ? lost() : null;
            if (lost == null) lease.lose(Lease.RELEASED); // it is not safe to work any more
        }
        var unlocked = request.unlock(client, lost == null ? validUntil() : System.nanoTime());
        if (own != null) unlocked.whenComplete((answer, failure) -> own.close());
        if (lost != null) throw lost;
        Throwable failure = settled(unlocked, request.ttl + Locks.SHORTEST_ANSWER); // the last is sent when the lease is over
        if (Client.isLoss(failure)) throw new LockLostException(request.names, failure.getMessage());
        if (failure != null) throw Client.failure(request.called("UNLOCK"), failure);
    }

    /** Gives the lock back after that time, in the background. Until then it is kept as before. */
    public void releaseAfter(Duration time) {
        Background.after(Request.ns(time), () -> {
            try {
                release();
            } catch (LockException e) {
                // it is over, which is all that was to be achieved
            }
        });
    }

    /** Waits for a future, for so many ns at most. Returns why it has failed; null: it has not, or it goes on. */
    static Throwable settled(CompletableFuture<?> future, long patience) {
        boolean interrupted = false;
        try {
            for (long end = System.nanoTime() + patience;;) {
                try {
                    future.get(end - System.nanoTime(), TimeUnit.NANOSECONDS);
                    return null;
                } catch (InterruptedException e) {
                    if (!interrupted) end = System.nanoTime() + Math.min(patience, PATIENCE_OF_THE_INTERRUPTED);
                    interrupted = true;
                } catch (ExecutionException e) {
                    return e.getCause();
                } catch (TimeoutException e) {
                    return null;
                }
            }
        } finally {
            if (interrupted) Thread.currentThread().interrupt();
        }
    }

    /** Renews the lock if it is time to, and sees to it that it is looked at again. */
    private synchronized void keep() {
        if (released || told) return;
        long now = System.nanoTime();
        long ttl = lease.next(now);
        if (ttl > 0) renew(ttl, now);
        goOn();
    }

    private void goOn() {
        if (timer != null) timer.cancel(false);
        if (lease.reason() == null) {
            timer = Background.after(lease.wakeAt() - System.nanoTime(), this::keep);
        } else if (!told) {
            told = true;
            if (own != null) own.close();
            Consumer<String> onLost = request.options.onLost();
            if (onLost != null) Background.THREADS.execute(() -> onLost.accept(lease.reason()));
        }
    }

    private CompletableFuture<Object> renew(long ttl, long asked) {
        List<String> command = request.renew(fences, ttl);
        // A connection that is dead without a word leaves time for another.
        long patience = Math.min(client.timeout(), request.ttl / 3);
        var answer = own != null ? own.send(command, lease.until() - asked) : client.send(command, patience);
        // In another thread, which does not have the monitor of a lock already.
        return answer.whenCompleteAsync((validity, failure) -> renewed(asked, validity, Client.cause(failure)), Background.THREADS);
    }

    private synchronized void renewed(long asked, Object validity, Throwable failure) {
        if (released || told) return;
        lease.answered(asked, validity, failure, System.nanoTime());
        goOn();
    }

    private synchronized void lose(String reason) {
        if (released || told) return;
        lease.lose(reason);
        goOn();
    }
}
