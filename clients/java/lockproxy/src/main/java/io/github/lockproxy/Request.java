package io.github.lockproxy;

import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** One acquisition. Its owner is new, and the id of its LOCK and UNLOCK as well, so that either counts once, however often it is sent. */
final class Request {
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final long SESSION_LIMIT = 12_000_000_000L;

    final String name;
    final String owner;
    final LockOptions options;
    final long ttl; // of a lease, in ns

    Request(String name, LockOptions options) {
        byte[] id = new byte[16];
        RANDOM.nextBytes(id);
        this.name = name;
        this.owner = HexFormat.of().formatHex(id);
        this.options = options;
        this.ttl = ns(options.ttl());
    }

    long maxHold() {
        return options.maxHold() == null ? ns(Duration.ofHours(1)) : ns(options.maxHold());
    }

    /**
     * The longest time, in ns, for which an answer makes it safe to work. A proxy to which the host of a session has vanished gives its
     * lock to another after 14 s.
     */
    long longestValidity() {
        return options.session() ? SESSION_LIMIT : Long.MAX_VALUE;
    }

    List<String> lock(long wait) {
        var words = new ArrayList<>(List.of("LOCK", name, ms(options.session() ? ttl : Math.min(ttl, maxHold())), "OWNER", owner, "REQ", owner));
        if (options.shared()) words.add("SHARED");
        if (options.permits() > 0) words.addAll(List.of("PERMITS", Integer.toString(options.permits())));
        if (options.info() != null) words.addAll(List.of("INFO", options.info()));
        if (options.session()) {
            words.addAll(List.of("SESSION", "ONLOSS", "CLOSE"));
            if (options.maxHold() != null) words.addAll(List.of("MAXHOLD", ms(maxHold())));
        }
        if (wait > 0) words.addAll(List.of("WAIT", ms(wait)));
        return words;
    }

    List<String> renew(long fence, long ttl) {
        return words("RENEW", name, ms(ttl), owner, "FENCE", Long.toString(fence));
    }

    /** The words of a command, which who shares the lock ends with SHARED. */
    private List<String> words(String... words) {
        var all = new ArrayList<>(List.of(words));
        if (options.shared() || options.permits() > 0) all.add("SHARED");
        return all;
    }

    /** Sends UNLOCK until it is answered, or the time of System.nanoTime() has come; at least once. */
    CompletableFuture<Object> unlock(Client client, long until) {
        var done = new CompletableFuture<Object>();
        unlock(client, until, done);
        return done;
    }

    private void unlock(Client client, long until, CompletableFuture<Object> done) {
        client.send(words("UNLOCK", name, owner, "REQ", owner), client.timeout()).whenComplete((answer, failure) -> {
            if (failure == null) {
                done.complete(answer);
            } else if (!Client.isTransient(Client.cause(failure)) || System.nanoTime() - until >= 0) {
                done.completeExceptionally(Client.cause(failure));
            } else {
                Background.after(Locks.PAUSE, () -> unlock(client, until, done));
            }
        });
    }

    /** A time for the wire, rounded up: a lease or a wait of 0 would mean something else. */
    private static String ms(long ns) {
        return Long.toString((ns + 999_999) / 1_000_000);
    }

    /** As many ns, but for times that are so long that they mean for ever. */
    static long ns(Duration d) {
        return d.compareTo(Duration.ofDays(36_500)) < 0 ? d.toNanos() : Duration.ofDays(36_500).toNanos();
    }
}
