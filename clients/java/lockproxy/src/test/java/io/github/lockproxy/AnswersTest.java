package io.github.lockproxy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** What follows from each answer. */
class AnswersTest {
    private static final LockOptions LONG = LockOptions.of(Duration.ofSeconds(30), Duration.ofMinutes(1));
    private static final Object NEVER = "never", NULL = "null";
    private static final Throwable GONE = new Client.Unanswered("gone", null);

    private static Throwable refused(String answer) {
        return new Client.Refused(answer, null);
    }

    private static List<Object> grant(long validity) {
        return List.of(7L, "me", validity, 1L);
    }

    /** A client whose commands are answered as a test says, in turn. What is behind that is answered 1. */
    private static final class Scripted implements Client {
        final List<List<String>> sent = new ArrayList<>();
        final List<String> own = new ArrayList<>(); // verbs over connections of their own, and "close"
        final CompletableFuture<Object> pending = new CompletableFuture<>(); // what never comes, as long as a test does not say so
        long askedAt;
        private final Deque<Object> answers = new ArrayDeque<>();

        Scripted(Object... answers) {
            this.answers.addAll(Arrays.asList(answers));
        }

        @Override
        public synchronized CompletableFuture<Object> send(List<String> command, long patience) {
            sent.add(command);
            askedAt = System.nanoTime();
            Object answer = answers.isEmpty() ? (Object) 1L : answers.poll();
            if (answer instanceof Throwable e) return CompletableFuture.failedFuture(e);
            return answer == NEVER ? pending.copy() : CompletableFuture.completedFuture(answer == NULL ? null : answer);
        }

        synchronized List<String> verbs() {
            return sent.stream().map(c -> c.get(0)).toList();
        }

        @Override
        public Conn open() {
            var client = this;
            return new Conn() {
                private final CompletableFuture<String> closed = new CompletableFuture<>();

                @Override
                public CompletableFuture<Object> send(List<String> command, long patience) {
                    own.add(command.get(0));
                    var answer = client.send(command, patience);
                    closed.thenAccept(why -> answer.completeExceptionally(GONE));
                    return answer;
                }

                @Override
                public CompletableFuture<?> made() {
                    return CompletableFuture.completedFuture(null);
                }

                @Override
                public CompletableFuture<String> closed() {
                    return closed;
                }

                @Override
                public void close() {
                    if (closed.complete("we have closed it")) own.add("close");
                }
            };
        }

        @Override
        public long timeout() {
            return 2_000_000_000;
        }

        @Override
        public void close() {}
    }

    private static Set<String> ids(List<List<String>> commands) {
        return commands.stream().map(c -> c.get(c.indexOf("REQ") + 1)).collect(Collectors.toSet());
    }

    @Test
    void aReaderSaysSoEachTime() throws Exception {
        var client = new Scripted(grant(29_000));
        Lock lock = new Locks(client).acquire("job", LONG.withShared(true).withInfo("me"));
        String me = lock.owner();
        assertEquals(List.of("LOCK", "job", "30000", "OWNER", me, "REQ", me, "SHARED", "INFO", "me"), client.sent.get(0));
        client.sent.clear();
        client.answers.add(1L);
        lock.release();
        assertEquals(List.of(List.of("UNLOCK", "job", me, "REQ", me, "SHARED")), client.sent);
    }

    @Test
    void aPermitIsGivenBackAsAReadersLock() throws Exception {
        var client = new Scripted(grant(29_000));
        Lock lock = new Locks(client).acquire("job", LONG.withPermits(3).withInfo("me"));
        String me = lock.owner();
        assertEquals(List.of("LOCK", "job", "30000", "OWNER", me, "REQ", me, "PERMITS", "3", "INFO", "me"), client.sent.get(0));
        client.sent.clear();
        client.answers.add(1L);
        lock.release();
        assertEquals(List.of(List.of("UNLOCK", "job", me, "REQ", me, "SHARED")), client.sent);
    }

    @Test
    void severalNames() throws Exception {
        var client = new Scripted(List.of(29_000L, "me", List.of("b", 7L, 1L), List.of("a", 8L, 1L)));
        var locks = new Locks(client);
        var names = new ArrayList<>(List.of("b", "a"));
        Lock lock = locks.acquireAll(names, LONG.withShared(true));
        names.clear();
        String me = lock.owner();
        assertEquals(List.of("LOCKALL", "2", "b", "a", "30000", "OWNER", me, "REQ", me, "SHARED"), client.sent.get(0));
        assertEquals(List.of("b", "a"), lock.names());
        assertEquals(Map.of("b", 7L, "a", 8L), lock.fences());
        assertThrows(IllegalStateException.class, lock::name);
        assertThrows(IllegalStateException.class, lock::fence);
        client.sent.clear();
        client.answers.addAll(List.of(29_000L, refused("LOCKLOST a: gone. The other name was given back")));
        lock.extend(Duration.ofMinutes(1));
        String message = assertThrows(LockLostException.class, lock::release).getMessage();
        assertEquals("the lock \"b\", \"a\" is lost: LOCKLOST a: gone. The other name was given back", message);
        assertEquals(List.of(List.of("RENEWALL", "2", "b", "a", "30000", me, "SHARED"), List.of("UNLOCKALL", "2", "b", "a", me, "REQ", me, "SHARED")), client.sent);
        client.answers.addAll(List.of(NULL, grant(29_000)));
        assertNull(locks.tryAcquireAll(List.of("b", "a"), LockOptions.DEFAULT));
        try (Lock one = locks.acquireAll(List.of("job"), LONG)) {
            assertEquals(Map.of(one.name(), one.fence()), one.fences());
        }
    }

    @Test
    void severalNamesOfWhichSomeWereLostBeforeTheAnswer() {
        var client = new Scripted(refused("LOCKLOST this request was granted before"));
        assertThrows(LockException.class, () -> new Locks(client).acquireAll(List.of("a", "b"), LONG));
        assertEquals(List.of("LOCKALL", "UNLOCKALL"), client.verbs());
    }

    @Test
    void severalNamesAreAnsweredByALockproxy() {
        for (Object answer : List.of("OK", List.of(1L, "me"), List.of(1L, "me", List.of("a", 7L, 1L)), List.of(1L, "me", "a", "b"), List.of("1", "me", List.of("a", 7L, 1L), List.of("b", 8L, 1L)))) {
            var client = new Scripted(answer);
            assertThrows(LockException.class, () -> new Locks(client).acquireAll(List.of("a", "b"), LONG), answer.toString());
        }
    }

    @Test
    void triedAgainAsItWas() throws Exception {
        var client = new Scripted(GONE, GONE, refused("NOQUORUM 1 of 3"), refused("DRAINING"), refused("UPSTREAMDOWN"), grant(29_000));
        Lock lock = new Locks(client).acquire("job", LONG);
        assertEquals(List.of("LOCK", "LOCK", "LOCK", "LOCK", "LOCK", "LOCK"), client.verbs());
        assertEquals(Set.of(lock.owner()), ids(client.sent));
        client.sent.clear();
        client.answers.addAll(List.of(GONE, refused("NOQUORUM"), 1L));
        lock.release();
        assertEquals(List.of(List.of("UNLOCK", "job", lock.owner(), "REQ", lock.owner())), client.sent.stream().distinct().toList());
        assertEquals(3, client.sent.size());
        lock.release();
        assertEquals(3, client.sent.size(), "the second is sent");
    }

    @Test
    void theFirstDoesNotWaitAndTheOthersHaveAConnection() throws Exception {
        var client = new Scripted(NULL, NULL, grant(29_000));
        Lock lock = new Locks(client).acquire("job", LONG);
        assertFalse(client.sent.get(0).contains("WAIT"));
        assertEquals(List.of("WAIT", "1000"), client.sent.get(1).subList(7, 9), "half of the timeout");
        assertEquals(List.of("LOCK", "LOCK"), client.own, "of the same connection, which is kept");
        assertEquals(Set.of(lock.owner()), ids(client.sent));
    }

    @Test
    void whatCannotSucceedIsNotTriedAgain() {
        for (Throwable e : List.of(refused("NOPERM no"), refused("MAXWAIT"), new IllegalStateException("closed"))) {
            var client = new Scripted(e);
            assertThrows(LockException.class, () -> new Locks(client).acquire("job", LONG));
            assertEquals(List.of("LOCK"), client.verbs());
        }
    }

    @Test
    void anotherHasIt() throws Exception {
        var client = new Scripted(NULL, NULL);
        assertNull(new Locks(client).tryAcquire("job", LockOptions.DEFAULT));
        assertThrows(LockNotAcquiredException.class, () -> new Locks(client).acquire("job", LockOptions.DEFAULT));
        assertEquals(List.of("LOCK", "LOCK"), client.verbs());
    }

    @Test
    void itMayHaveBeenGranted() {
        var client = new Scripted(GONE, GONE, GONE);
        assertThrows(LockException.class, () -> new Locks(client).acquire("job", LockOptions.DEFAULT));
        assertEquals(List.of("LOCK", "LOCK", "UNLOCK", "UNLOCK"), client.verbs());
        assertEquals(List.of("LOCK", "close"), client.own, "those that the client has may all have ended");
        assertEquals(1, ids(client.sent).size());
    }

    @Test
    void interrupted() {
        for (boolean session : new boolean[] {false, true}) {
            var client = new Scripted(session ? NEVER : NULL, NEVER);
            if (session) client.answers.removeLast();
            Thread.currentThread().interrupt();
            assertThrows(InterruptedException.class, () -> new Locks(client).acquire("job", LONG.withSession(session)));
            assertFalse(Thread.currentThread().isInterrupted());
            World.until(() -> client.verbs().contains("UNLOCK"), "it is not given back");
        }
    }

    @Test
    void overWhenItArrives() throws Exception {
        var client = new Scripted(List.of(7L, "me", 0L, 0L), 1L, grant(29_000));
        Lock lock = new Locks(client).acquire("job", LONG);
        assertEquals(List.of("LOCK", "UNLOCK", "LOCK"), client.verbs());
        assertEquals(client.sent.get(0).get(4), client.sent.get(1).get(2));
        assertNotEquals(client.sent.get(0).get(4), client.sent.get(2).get(4));
        assertEquals(client.sent.get(2).get(4), lock.owner());
        var e = assertThrows(LockException.class, () -> new Locks(new Scripted(grant(0))).acquire("job", LockOptions.DEFAULT));
        assertTrue(e.getMessage().contains("over when the answer came"), e.getMessage());
    }

    @Test
    void validFromBeforeItWasAskedFor() throws Exception {
        var client = new Scripted(grant(29_000));
        Lock lock = new Locks(client).acquire("job", LONG);
        assertTrue(lock.validUntil() - (client.askedAt + 29_000_000_000L) <= 0);
    }

    /** UNLOCK is sent less and less often, and the last time when the lease is over. */
    @Test
    void releasedInAnOutage() {
        Object[] answers = new Object[100];
        Arrays.fill(answers, refused("NOQUORUM 0 of 3"));
        var client = new Scripted(answers);
        long over = System.nanoTime() + 1_000_000_000;
        var unlocked = new Request(List.of("job"), LONG).unlock(client, over);
        assertThrows(ExecutionException.class, () -> unlocked.get(1, TimeUnit.MINUTES));
        assertTrue(client.askedAt - over >= 0, "it gives up before the lease is over");
        assertTrue(client.sent.size() <= 6, client.verbs() + ""); // after 0, 0.1, 0.3, 0.7 and 1 s
    }

    /** LOCK is sent less and less often, and the last time when the wait is over. */
    @Test
    void askedForInAnOutage() {
        Object[] answers = new Object[100];
        Arrays.fill(answers, refused("NOQUORUM 0 of 3"));
        var client = new Scripted(answers);
        long began = System.nanoTime();
        assertThrows(LockException.class, () -> new Locks(client).acquire("job", LONG.withWaitTime(Duration.ofSeconds(1))));
        assertTrue(System.nanoTime() - began >= 1_000_000_000, "it gives up before the wait is over");
        long locks = client.verbs().stream().filter(verb -> !verb.equals("UNLOCK")).count();
        assertTrue(locks <= 6, client.verbs() + ""); // after 0, 0.1, 0.3, 0.7 and 1 s
    }

    /** UNLOCK over another connection must not overtake it. */
    @Test
    void givenBackWhenItIsUnderWayNoMore() throws Exception {
        var client = new Scripted(NEVER);
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> new Locks(client).acquire("job", LONG));
        assertEquals(List.of("LOCK"), client.verbs());
        client.pending.complete(grant(29_000));
        World.until(() -> client.verbs().equals(List.of("LOCK", "UNLOCK")), "it is not given back");
    }

    @Test
    void lostWhenItIsGivenBack() throws Exception {
        for (String said : new String[] {"LOCKLOST gone", "NOTOWNER another"}) {
            var client = new Scripted(grant(29_000), refused(said));
            Lock lock = new Locks(client).acquire("job", LONG);
            var e = assertThrows(LockLostException.class, lock::close);
            assertTrue(e.getMessage().contains(said), e.getMessage());
        }
    }

    @Test
    void whatTheBodyThrowsComesFirst() {
        var client = new Scripted(grant(29_000), refused("LOCKLOST"));
        var e = assertThrows(ArithmeticException.class, () -> {
            try (Lock lock = new Locks(client).acquire("job", LONG)) {
                throw new ArithmeticException(lock.name());
            }
        });
        assertEquals(LockLostException.class, e.getSuppressed()[0].getClass());
    }

    @Test
    void aReleasedLockIsNotSafeToWorkWith() throws Exception {
        Lock lock = new Locks(new Scripted(grant(29_000), 1L)).acquire("job", LONG);
        lock.release();
        assertTrue(lock.remaining().isZero());
        assertFalse(lock.isLost());
        assertTrue(assertThrows(LockLostException.class, lock::check).getMessage().contains("it was released"));

        Lock late = new Locks(new Scripted(grant(50), 1L)).acquire("job", LONG.withRenew(false));
        World.until(late::isLost, "it goes on");
        assertThrows(LockLostException.class, late::release);
        assertTrue(late.isLost());
    }

    @Test
    void givenBackUntilTheLeaseIsOver() throws Exception {
        var client = new Scripted(grant(300));
        for (int i = 0; i < 100; i++) client.answers.add(GONE);
        Lock lock = new Locks(client).acquire("job", LONG.withRenew(false));
        assertThrows(LockException.class, lock::release);
        assertTrue(System.nanoTime() - lock.validUntil() >= 0);
    }

    @Test
    void theConnectionOfASessionEndsWithIt() throws Exception {
        var client = new Scripted(grant(29_000));
        new Locks(client).acquire("job", LONG.withSession(true).withMaxHold(Duration.ofMinutes(2))).release();
        World.until(() -> client.own.equals(List.of("LOCK", "close")), "it does not end");
        assertEquals(List.of("SESSION", "ONLOSS", "CLOSE", "MAXHOLD", "120000", "WAIT", "1000"), client.sent.get(0).subList(7, 14));
        var none = new Scripted(NULL);
        assertNull(new Locks(none).tryAcquire("job", LockOptions.DEFAULT.withSession(true)));
        assertEquals(List.of("LOCK", "close"), none.own);
    }

    @Test
    void noLockproxy() {
        for (Object answer : List.of(1L, List.of(1L), "OK")) {
            assertThrows(LockException.class, () -> new Locks(new Scripted(answer)).acquire("job", LONG));
        }
    }
}
