package io.github.lockproxy;

import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;

/** One acquisition, of one name or several. Its owner is new, and the id of its LOCK and UNLOCK as well, so that either counts once, however often it is sent. */
final class Request {
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final long SESSION_LIMIT = 12_000_000_000L;

    final List<String> names;
    final String owner;
    final LockOptions options;
    final long ttl; // of a lease, in ns

    Request(List<String> names, LockOptions options) {
        byte[] id = new byte[16];
        RANDOM.nextBytes(id);
        this.names = names;
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
        var words = words("LOCK", ms(options.session() ? ttl : Math.min(ttl, maxHold())), "OWNER", owner, "REQ", owner);
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

    /** What was granted. The fences are in the order of the names. */
    record Grant(Map<String, Long> fences, long validity) {}

    /** What the reply to LOCK has granted; null: it is no answer of a lockproxy. */
    Grant grant(Object reply) {
        if (!(reply instanceof List<?> list)) return null;
        if (names.size() == 1) {
            return list.size() == 4 && list.get(0) instanceof Long fence && list.get(2) instanceof Long validity ? new Grant(Map.of(names.get(0), fence), validity) : null;
        }
        if (list.size() != 2 + names.size() || !(list.get(0) instanceof Long validity)) return null;
        var fences = new LinkedHashMap<String, Long>();
        for (String name : names) {
            if (!(list.get(2 + fences.size()) instanceof List<?> one && one.size() == 3 && one.get(1) instanceof Long fence)) return null;
            fences.put(name, fence);
        }
        return new Grant(Collections.unmodifiableMap(fences), validity);
    }

    List<String> renew(Map<String, Long> fences, long ttl) {
        var words = words("RENEW", ms(ttl), owner);
        if (names.size() == 1) words.addAll(List.of("FENCE", Long.toString(fences.get(names.get(0))))); // of several each has its own
        return sharing(words);
    }

    private List<String> unlock() {
        return sharing(words("UNLOCK", owner, "REQ", owner));
    }

    /** The words of a command for the names: LOCK of one, LOCKALL of several. */
    private List<String> words(String verb, String... more) {
        var all = new ArrayList<String>();
        if (names.size() == 1) all.add(verb);
        else all.addAll(List.of(verb + "ALL", Integer.toString(names.size())));
        all.addAll(names);
        all.addAll(List.of(more));
        return all;
    }

    /** The words of RENEW or UNLOCK, which who shares the lock ends with SHARED. */
    private List<String> sharing(List<String> all) {
        if (options.shared() || options.permits() > 0) all.add("SHARED");
        return all;
    }

    /** Sends UNLOCK until it is answered, or the time of System.nanoTime() has come; at least once. */
    CompletableFuture<Object> unlock(Client client, long until) {
        var done = new CompletableFuture<Object>();
        unlock(client, until, new Pauses(), done);
        return done;
    }

    private void unlock(Client client, long until, Pauses pauses, CompletableFuture<Object> done) {
        client.send(unlock(), client.timeout()).whenComplete((answer, failure) -> {
            if (failure == null) {
                done.complete(answer);
            } else if (!Client.isTransient(Client.cause(failure)) || System.nanoTime() - until >= 0) {
                done.completeExceptionally(Client.cause(failure));
            } else {
                Background.after(Math.min(pauses.next(), until - System.nanoTime()), () -> unlock(client, until, pauses, done));
            }
        });
    }

    /** A command, in a message. */
    String called(String verb) {
        return words(verb).get(0) + " " + quoted(names);
    }

    static String quoted(List<String> names) {
        return names.stream().map(name -> "\"" + name + "\"").collect(Collectors.joining(", "));
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
