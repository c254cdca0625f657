package io.github.lockproxy;

/**
 * When a lock is to be renewed, and when it is lost. It has neither a clock nor a connection: times are those of System.nanoTime(), and whoever
 * keeps the lock calls next at wakeAt and answered with what came of each RENEW.
 */
final class Lease {
    static final String ENDED = "its validity ended";
    static final String RELEASED = "it was released";

    private final Request request;
    private long holdEnd; // the lock is not held for longer
    private long until;
    private long renewAt;
    private boolean renews; // at renewAt; false: nothing is to be gained any more
    private boolean asking; // RENEW has been sent
    private boolean last; // and was the last one
    private String why = ENDED; // what the reason will be at until
    private String reason;
    private final Pauses pauses = new Pauses();

    Lease(Request request, long asked, long validity) {
        this.request = request;
        this.holdEnd = asked + request.maxHold();
        this.renews = request.options.renew() || request.options.session();
        ttl(asked);
        extend(asked, validity);
    }

    private void extend(long asked, long validity) {
        long end = asked + Math.min(validity * 1_000_000, request.longestValidity());
        until = earlier(end, holdEnd);
        renewAt = asked + Math.min(request.ttl, request.longestValidity()) / 3;
        why = ENDED;
        pauses.reset();
        if (renews && (until == holdEnd || last)) {
            renews = false;
            why = ENDED + ", it was held for maxHold";
        }
    }

    /** Up to when it is safe to work. */
    long until() {
        return until;
    }

    /** Why the lock is lost; null: it is not, as far as is known. */
    String reason() {
        return reason;
    }

    void lose(String reason) {
        if (this.reason == null) this.reason = reason;
    }

    long wakeAt() {
        return renews && !asking ? earlier(renewAt, until) : until;
    }

    /** For how long a RENEW that is sent now is to ask, in ns; 0: none is due. The lock may be lost afterwards. */
    long next(long now) {
        if (now - until >= 0) {
            lose(why);
        } else if (renews && !asking && now - renewAt >= 0) {
            asking = true;
            return ttl(now);
        }
        return 0;
    }

    /** What RENEW asks for now: no more than to the end of the hold. */
    private long ttl(long now) {
        last = !request.options.session() && holdEnd - now <= request.ttl;
        return last ? holdEnd - now : request.ttl;
    }

    /** RENEW was answered at now: with a validity, counted from when it was sent, or, if failure is not null, not. */
    void answered(long asked, Object validity, Throwable failure, long now) {
        asking = false;
        if (failure == null) {
            if (now - until < 0) extend(asked, (Long) validity);
        } else if (Client.isLoss(failure)) {
            lose(failure.getMessage());
        } else {
            renewAt = now + pauses.next(until - now);
            why = ENDED + ", it could not be renewed: " + failure.getMessage();
        }
    }

    /** The lock is to end at so many ns after now. Returns what RENEW has to ask for. */
    long hold(long now, long hold) {
        holdEnd = now + hold;
        renews = request.options.renew() || request.options.session();
        asking = true;
        return ttl(now);
    }

    private static long earlier(long a, long b) {
        return a - b < 0 ? a : b;
    }
}
