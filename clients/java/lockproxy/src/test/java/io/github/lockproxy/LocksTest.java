package io.github.lockproxy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import io.github.lockproxy.World.HolderProcess;
import io.github.lockproxy.World.Kind;
import io.github.lockproxy.World.Link;
import io.github.lockproxy.World.Look;
import io.github.lockproxy.World.Opened;
import io.github.lockproxy.World.Settings;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Locks of both clients, in both protocols, at proxies. */
class LocksTest {
    private static final LockOptions LONG = LockOptions.of(World.LONG, World.LONG);
    private static final LockOptions ONCE = LONG.withWaitTime(Duration.ZERO);
    private static final boolean[] SESSION_OR_NOT = {false, true};

    private final List<AutoCloseable> opened = new CopyOnWriteArrayList<>();
    private final List<String> reasons = new CopyOnWriteArrayList<>();
    private Look look;
    private String name;

    @BeforeEach
    void open(TestInfo info) {
        look = new Look();
        name = info.getTestMethod().orElseThrow().getName() + ":" + info.getDisplayName();
    }

    @AfterEach
    void close() throws Exception {
        for (AutoCloseable c : opened) c.close();
        look.close();
    }

    private Locks connect(Kind kind) throws Exception {
        return connect(kind, Settings.at(World.proxy(0)));
    }

    private Locks connect(Kind kind, Settings settings) throws Exception {
        Opened o = kind.open(settings);
        opened.add(o);
        return o.locks();
    }

    private Link link() throws Exception {
        var link = new Link();
        opened.add(link);
        return link;
    }

    private static <T> FutureTask<T> inBackground(Callable<T> work) {
        var task = new FutureTask<>(work);
        new Thread(task).start();
        return task;
    }

    private void isFree() {
        World.until(() -> look.holder(name) == null, "it is not free");
    }

    private String told() {
        World.until(() -> !reasons.isEmpty(), "the loss is not told");
        return reasons.get(0);
    }

    private static void assertMatches(String pattern, String s) {
        assertTrue(s.matches("(?s)" + pattern), s);
    }

    @ParameterizedTest
    @EnumSource
    void takenAndGivenBack(Kind kind) throws Exception {
        Locks locks = connect(kind);
        Lock first;
        try (Lock lock = locks.acquire(name, World.LONG, World.LONG)) {
            first = lock;
            assertEquals(name, lock.name());
            assertFalse(lock.isLost());
            assertTrue(lock.remaining().compareTo(World.SOON) > 0 && lock.remaining().compareTo(World.LONG) <= 0, lock.remaining().toString());
            assertEquals(lock.owner(), look.holder(name));
            lock.check();
            assertNull(locks.tryAcquire(name, ONCE));
            assertThrows(LockNotAcquiredException.class, () -> locks.acquire(name, ONCE));
        }
        assertNull(look.holder(name));
        Lock again = locks.acquire(name, LONG.withInfo("me"));
        assertTrue(again.fence() > first.fence());
        first.release();
        assertEquals(again.owner(), look.holder(name));
        again.release();
        again.release();
        assertNull(look.holder(name));
    }

    /** They have it at the same time, each renewed, and keep a writer out until the last has gone, who keeps them out. */
    @ParameterizedTest
    @EnumSource
    void readers(Kind kind) throws Exception {
        Locks locks = connect(kind);
        LockOptions reader = LONG.withShared(true);
        Lock first = locks.acquire(name, reader.withTtl(World.LONG.dividedBy(10)));
        Lock second = locks.acquire(name, reader.withSession(true));
        long validUntil = first.validUntil();
        World.until(() -> first.validUntil() > validUntil, "it is not renewed");
        assertNull(locks.tryAcquire(name, ONCE));
        first.release();
        assertNull(locks.tryAcquire(name, ONCE));
        second.release();
        try (Lock writer = locks.acquire(name, LONG)) {
            assertTrue(writer.fence() > first.fence() && writer.fence() > second.fence());
            assertNull(locks.tryAcquire(name, ONCE.withShared(true)));
        }
        locks.acquire(name, reader).release();
    }

    /** As many have it at the same time as there are permits, each renewed; nobody has it for itself meanwhile. */
    @ParameterizedTest
    @EnumSource
    void permits(Kind kind) throws Exception {
        Locks locks = connect(kind);
        LockOptions permit = LONG.withPermits(2);
        Lock first = locks.acquire(name, permit.withTtl(World.LONG.dividedBy(10)));
        Lock second = locks.acquire(name, permit.withSession(true));
        assertTrue(second.fence() > first.fence());
        long validUntil = first.validUntil();
        World.until(() -> first.validUntil() > validUntil, "it is not renewed");
        assertNull(locks.tryAcquire(name, ONCE.withPermits(2)));
        assertNull(locks.tryAcquire(name, ONCE));
        first.release();
        try (Lock third = locks.acquire(name, permit)) {
            assertTrue(third.fence() > second.fence());
        }
        second.release();
        try (Lock alone = locks.acquire(name, LONG)) {
            assertNull(locks.tryAcquire(name, ONCE.withPermits(2)));
            assertTrue(alone.fence() > second.fence());
        }
    }

    /** All or none: who waits for them holds none, and gets them when they are given back together. */
    @ParameterizedTest
    @EnumSource
    void severalNames(Kind kind) throws Exception {
        Locks locks = connect(kind);
        String a = name + ":a", b = name + ":b", c = name + ":c";
        Lock first = locks.acquireAll(List.of(b, a), LONG.withTtl(World.LONG.dividedBy(10)));
        assertEquals(List.of(b, a), List.copyOf(first.fences().keySet()));
        assertNull(locks.tryAcquireAll(List.of(c, b), ONCE));
        var waiting = inBackground(() -> locks.acquireAll(List.of(a, b, c), LONG.withSession(true)));
        World.until(() -> look.waiting(a) + look.waiting(b) == 1, "it is not in line");
        long validUntil = first.validUntil();
        World.until(() -> first.validUntil() > validUntil, "it is not renewed");
        assertEquals(first.owner(), look.holder(a));
        assertEquals(first.owner(), look.holder(b));
        assertNull(look.holder(c));
        first.release();
        try (Lock second = waiting.get()) {
            for (String n : first.names()) assertTrue(second.fences().get(n) > first.fences().get(n), n);
            assertEquals(second.owner(), look.holder(c));
        }
        try (Lock one = locks.acquireAll(List.of(a, b), LONG.withShared(true)); Lock other = locks.acquireAll(List.of(b, c), LONG.withShared(true))) {
            assertNull(locks.tryAcquire(c, ONCE));
        }
        for (String n : List.of(a, b, c)) assertNull(look.holder(n));
    }

    /** The lock is lost, and the others are given back. */
    @ParameterizedTest
    @EnumSource
    void oneOfSeveralForced(Kind kind) throws Exception {
        Locks locks = connect(kind);
        String a = name + ":a", b = name + ":b";
        for (boolean session : SESSION_OR_NOT) {
            reasons.clear();
            Lock lock = locks.acquireAll(List.of(a, b), LONG.withTtl(World.LONG.dividedBy(2)).withSession(session).withOnLost(reasons::add));
            look.force(b);
            assertMatches("LOCKLOST .*:b: .*|its connection ended.*", told());
            assertThrows(LockLostException.class, lock::check);
            assertThrows(LockLostException.class, lock::release);
            World.until(() -> look.holder(a) == null, "it is not free");
            assertEquals(1, reasons.size());
        }
    }

    /** Each waits for longer than its client's timeout, and asks again and again: that does not cost it its place, and holds up nothing else. */
    @ParameterizedTest
    @EnumSource
    void servedInTurn(Kind kind) throws Exception {
        for (int tried = 0; tried < 5; tried++) { // who is kept from asking again for 2 s, on a busy machine, may lose it
            var order = new CopyOnWriteArrayList<Integer>();
            Locks locks = connect(kind, Settings.at(World.proxy(0)).timeout(Duration.ofMillis(500)));
            Lock held = connect(kind).acquire(name, LONG);
            var waiters = new ArrayList<FutureTask<Boolean>>();
            for (int i = 0; i < 3; i++) {
                int number = i;
                waiters.add(inBackground(() -> {
                    try (Lock lock = locks.acquire(name, LONG)) {
                        order.add(number);
                        return lock.isLost();
                    }
                }));
                World.until(() -> look.waiting(name) == number + 1, "it is not in line");
            }
            long began = System.nanoTime();
            World.until(() -> System.nanoTime() - began > 1_500_000_000, "they ask again");
            connect(kind).acquire("another:" + name, LONG).release();
            held.release();
            for (var w : waiters) w.get();
            if (order.equals(List.of(0, 1, 2))) return;
        }
        fail("never served in turn");
    }

    @ParameterizedTest
    @EnumSource
    void interruptedWhileItWaits(Kind kind) throws Exception {
        Locks locks = connect(kind);
        for (boolean session : SESSION_OR_NOT) {
            try (Lock held = locks.acquire(name, LONG)) {
                var thrown = new CompletableFuture<Throwable>();
                var thread = new Thread(() -> {
                    try {
                        locks.acquire(name, LONG.withSession(session));
                        thrown.complete(null);
                    } catch (Throwable e) {
                        thrown.complete(e);
                    }
                });
                thread.start();
                World.until(() -> look.waiting(name) == 1, "it is not in line");
                thread.interrupt();
                assertTrue(thrown.get() instanceof InterruptedException, () -> thrown.join() + " with " + held.owner());
                World.until(() -> look.waiting(name) == 0, "it is still in line");
            }
            assertNull(look.holder(name));
        }
    }

    @ParameterizedTest
    @EnumSource
    void killedInASession(Kind kind) throws Exception {
        var holder = new HolderProcess(kind, name, World.LONG, "session");
        opened.add(holder);
        Locks locks = connect(kind);
        var next = inBackground(() -> locks.acquire(name, LONG));
        World.until(() -> look.waiting(name) == 1, "it is not in line");
        long killed = System.nanoTime();
        holder.kill();
        Lock lock = next.get();
        assertTrue(System.nanoTime() - killed < World.SOON.toNanos());
        assertTrue(lock.fence() > holder.fence);
        lock.release();
    }

    @ParameterizedTest
    @EnumSource
    void killedWhileItRenews(Kind kind) throws Exception {
        var holder = HolderProcess.thatHoldsOn(kind, name, Duration.ofSeconds(2));
        opened.add(holder);
        Locks locks = connect(kind);
        var next = inBackground(() -> locks.acquire(name, LONG));
        World.until(() -> look.waiting(name) == 1, "it is not in line");
        long until = holder.kill();
        Lock lock = next.get();
        assertTrue(until == 0 || System.nanoTime() - until >= 0, "it was still valid");
        assertTrue(lock.fence() > holder.fence);
        lock.release();
    }

    @ParameterizedTest
    @EnumSource
    void takenAway(Kind kind) throws Exception {
        Locks locks = connect(kind);
        for (boolean session : SESSION_OR_NOT) {
            reasons.clear();
            Lock lock = locks.acquire(name, LONG.withTtl(session ? World.LONG : Duration.ofSeconds(3)).withSession(session).withOnLost(reasons::add));
            look.force(name);
            assertMatches("LOCKLOST.*|its connection ended.*|its validity ended.*", told());
            assertTrue(lock.isLost());
            assertThrows(LockLostException.class, lock::check);
            assertThrows(LockLostException.class, lock::release);
            lock.release();
            assertEquals(1, reasons.size());
        }
    }

    @ParameterizedTest
    @EnumSource
    void takenAwayAndReleasedAtOnce(Kind kind) throws Exception {
        Locks locks = connect(kind);
        for (boolean session : SESSION_OR_NOT) {
            Lock lock = locks.acquire(name, LONG.withSession(session));
            look.force(name);
            assertThrows(LockLostException.class, lock::close);
            lock.close();
        }
    }

    @ParameterizedTest
    @EnumSource
    void endOfASessionsConnection(Kind kind) throws Exception {
        Link link = link();
        Lock lock = connect(kind, Settings.at(link.address())).acquire(name, LONG.withSession(true).withOnLost(reasons::add));
        assertFalse(lock.isLost());
        link.cut();
        assertMatches("its connection ended.*", told());
        Lock other = connect(kind).tryAcquire(name, LONG.withWaitTime(World.SOON));
        assertNotNull(other);
        assertThrows(LockLostException.class, lock::release);
        assertEquals(1, reasons.size());
        assertEquals(other.owner(), look.holder(name));
        other.release();
    }

    @ParameterizedTest
    @EnumSource
    void aSessionEndsWithTheLock(Kind kind) throws Exception {
        Link link = link();
        Locks locks = connect(kind, Settings.at(link.address()));
        locks.acquire(name, LONG).release();
        int before = link.connections();
        try (Lock lock = locks.acquire(name, LONG.withSession(true))) {
            assertEquals(before + 1, link.connections());
            lock.check();
        }
        World.until(() -> link.connections() == before, "its connection is still open");
    }

    /** Connections of our own have the settings of the client's. */
    @ParameterizedTest
    @EnumSource
    void settings(Kind kind) throws Exception {
        Locks locks = connect(kind, Settings.overTls());
        String mine = "app:" + name;
        for (boolean session : SESSION_OR_NOT) {
            Lock lock = locks.acquire(mine, LONG.withSession(session));
            assertNull(look.holder(mine), "it is in another database");
            long before = lock.validUntil();
            assertNull(locks.tryAcquire(mine, LONG.withWaitTime(Duration.ofMillis(300)).withSession(session)));
            World.until(() -> !session || lock.validUntil() != before || lock.isLost(), "it is not renewed"); // lost on a busy machine alone
            if (!lock.isLost()) lock.release();
            var e = assertThrows(LockException.class, () -> locks.acquire(name, LONG.withSession(session)));
            assertMatches(".*NOPERM.*", e.getMessage());
        }
        try (Lock lock = locks.acquire(mine, LONG)) {
            assertFalse(lock.isLost());
        }
    }

    @ParameterizedTest
    @EnumSource
    void noAnswerUntilTheValidityIsOver(Kind kind) throws Exception {
        for (boolean session : SESSION_OR_NOT) {
            reasons.clear();
            Link link = link();
            var toldAt = new CompletableFuture<Long>();
            Lock lock = connect(kind, Settings.at(link.address())).acquire(name, LONG.withTtl(Duration.ofSeconds(1)).withSession(session).withOnLost(why -> {
                toldAt.complete(System.nanoTime());
                reasons.add(why);
            }));
            link.fallSilent();
            assertMatches("its validity ended.*|its connection ended.*", told());
            // A proxy on a busy machine may lose it itself, and says so.
            assertTrue(toldAt.get() - lock.validUntil() >= 0 || session && !told().contains("no answer"), told());
            assertThrows(LockLostException.class, lock::release);
            assertEquals(1, reasons.size());
            link.close();
            isFree();
        }
    }

    @ParameterizedTest
    @EnumSource
    void notRenewed(Kind kind) throws Exception {
        Lock lock = connect(kind).acquire(name, LONG.withTtl(Duration.ofMillis(500)).withRenew(false).withOnLost(reasons::add));
        long until = lock.validUntil();
        assertEquals("its validity ended", told());
        assertEquals(until, lock.validUntil());
        assertThrows(LockLostException.class, lock::release);
        isFree();
    }

    @ParameterizedTest
    @EnumSource
    void heldForMaxHold(Kind kind) throws Exception {
        Locks locks = connect(kind);
        Lock lock = locks.acquire(name, LONG.withMaxHold(Duration.ofMillis(500)).withOnLost(reasons::add));
        assertMatches("its validity ended, it was held for maxHold", told());
        isFree(); // well before the ttl
        reasons.clear();
        lock = locks.acquire(name, LONG.withMaxHold(Duration.ofMillis(500)).withSession(true).withOnLost(reasons::add));
        assertMatches("its connection ended.*|its validity ended.*", told());
        assertThrows(LockLostException.class, lock::release);
    }

    @ParameterizedTest
    @EnumSource
    void extended(Kind kind) throws Exception {
        Lock lock = connect(kind).acquire(name, LONG.withMaxHold(Duration.ofSeconds(10)));
        lock.extend(World.LONG);
        assertTrue(lock.remaining().compareTo(World.SOON) > 0, lock.remaining().toString());
        lock.extend(Duration.ofMillis(500));
        assertTrue(lock.remaining().compareTo(Duration.ofMillis(500)) <= 0, lock.remaining().toString());
        World.until(lock::isLost, "it goes on");
        assertThrows(LockLostException.class, () -> lock.extend(World.LONG));
        isFree();
    }

    @ParameterizedTest
    @EnumSource
    void releasedLater(Kind kind) throws Exception {
        Lock lock = connect(kind).acquire(name, LONG);
        long end = System.nanoTime() + 300_000_000;
        lock.releaseAfter(Duration.ofMillis(300));
        isFree();
        assertTrue(System.nanoTime() - end >= 0);
    }

    /** A lock is renewed and given back wherever the client's connections lead. */
    @ParameterizedTest
    @EnumSource
    void throughAnotherProxy(Kind kind) throws Exception {
        for (int tried = 0; tried < 5; tried++) { // on a busy machine it may be lost before it is renewed
            Link link = link();
            Lock lock = connect(kind, Settings.at(link.address())).acquire(name, LONG.withTtl(Duration.ofSeconds(10)));
            long before = lock.validUntil();
            link.leadTo(World.proxy(1));
            link.cut();
            World.until(() -> lock.validUntil() != before || lock.isLost(), "it is not renewed");
            if (lock.isLost()) continue;
            lock.release();
            assertNull(look.holder(name));
            return;
        }
        fail("it is never renewed");
    }

    /** The connections that the client has all ended, without its knowing: for one who does not wait, too. */
    @ParameterizedTest
    @EnumSource
    void afterTheConnectionsHaveEnded(Kind kind) throws Exception {
        Link link = link();
        Locks locks = connect(kind, Settings.at(link.address()));
        for (int i = 0; i < 3; i++) {
            locks.acquire(name, ONCE).release();
            link.cut();
            World.until(() -> link.connections() == 0, "they are open");
        }
        locks.close();
        locks.acquire(name, ONCE).release();
    }

    @ParameterizedTest
    @EnumSource
    void givenBackAlsoIfInterrupted(Kind kind) throws Exception {
        Locks locks = connect(kind);
        var interrupted = inBackground(() -> {
            try (Lock lock = locks.acquire(name, LONG)) {
                Thread.currentThread().interrupt();
                lock.check();
            }
            return Thread.currentThread().isInterrupted();
        });
        assertTrue(interrupted.get());
        isFree();
    }

    /** Who closes the client first is told, and does not wait for the end of the lease. */
    @ParameterizedTest
    @EnumSource
    void releasedAfterTheClientWasClosed(Kind kind) throws Exception {
        Opened o = kind.open(Settings.at(World.proxy(0)));
        Lock lock = o.locks().acquire(name, LONG);
        o.close();
        var released = inBackground(() -> {
            lock.release();
            return null;
        });
        long began = System.nanoTime();
        var e = assertThrows(ExecutionException.class, released::get);
        assertTrue(e.getCause() instanceof LockException, e.toString());
        assertTrue(System.nanoTime() - began < World.SOON.toNanos());
        look.force(name);
    }
}
