package io.github.lockproxy.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import io.github.lockproxy.JedisLocks;
import io.github.lockproxy.LockOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CopyOnWriteArraySet;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import org.springframework.integration.support.locks.LockRegistry;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.ConnectionPool;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;

/** Two registries, as of two programs, at two proxies of PROXIES. */
class LockproxyLockRegistryTest {
    private static final Duration LONG = Duration.ofMinutes(1);
    private static final List<ConnectionPool> CLIENTS = new ArrayList<>();

    private final LockOptions options = LockOptions.DEFAULT.withTtl(LONG);
    private final String prefix = UUID.randomUUID() + ":";
    private final LockRegistry one = registry(0, options), other = registry(1, options);

    @BeforeAll
    static void connect() {
        String all = System.getenv("PROXIES");
        Assumptions.assumeTrue(all != null, "PROXIES names no two proxies");
        for (String addr : all.split(" ")) CLIENTS.add(new ConnectionPool(HostAndPort.from(addr), DefaultJedisClientConfig.builder().build()));
    }

    @AfterAll
    static void close() {
        CLIENTS.forEach(ConnectionPool::close);
    }

    private LockRegistry registry(int proxy, LockOptions options) {
        return new LockproxyLockRegistry(JedisLocks.of(CLIENTS.get(proxy)), prefix, options);
    }

    private void force(String key) {
        try (var c = CLIENTS.get(0).getResource()) {
            c.executeCommand(new CommandArguments(() -> "LOCKCTL".getBytes()).add("FORCE").add(prefix + key));
        }
    }

    private static <T> T elsewhere(Callable<T> work) throws Exception {
        var task = new FutureTask<>(work);
        new Thread(task).start();
        return task.get();
    }

    @Test
    void isHeldByOneThreadOfOneProgram() throws Exception {
        Lock lock = one.obtain("key");
        lock.lock();
        assertFalse(other.obtain("key").tryLock());
        assertFalse(other.obtain("key").tryLock(100, TimeUnit.MILLISECONDS));
        assertFalse(elsewhere(() -> one.obtain("key").tryLock()));
        assertThrows(IllegalMonitorStateException.class, () -> other.obtain("key").unlock());
        elsewhere(() -> assertThrows(IllegalMonitorStateException.class, lock::unlock));
        assertTrue(other.obtain("another").tryLock());
        other.obtain("another").unlock();
        one.obtain("key").unlock(); // another handle of the same lock
        assertTrue(other.obtain("key").tryLock());
        other.obtain("key").unlock();
    }

    @Test
    void mayBeTakenAgainByItsThread() {
        Lock lock = one.obtain("key");
        lock.lock();
        assertTrue(lock.tryLock());
        lock.unlock();
        assertFalse(other.obtain("key").tryLock());
        lock.unlock();
        assertTrue(other.obtain("key").tryLock());
        other.obtain("key").unlock();
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void keepsUpdatesApart() throws Exception {
        int[] counter = {0};
        var threads = new ArrayList<FutureTask<Void>>();
        for (int i = 0; i < 4; i++) {
            LockRegistry registry = i < 2 ? one : other;
            var task = new FutureTask<Void>(() -> {
                for (int j = 0; j < 10; j++) {
                    Lock lock = registry.obtain("key");
                    lock.lock();
                    try {
                        int read = counter[0];
                        Thread.sleep(1);
                        counter[0] = read + 1;
                    } finally {
                        lock.unlock();
                    }
                }
                return null;
            });
            threads.add(task);
            new Thread(task).start();
        }
        for (var t : threads) t.get();
        assertEquals(40, counter[0]);
    }

    @Test
    void whoIsInterruptedHasItAllTheSameOrNot() throws Exception {
        Lock lock = one.obtain("key");
        elsewhere(() -> {
            Thread.currentThread().interrupt();
            lock.lock();
            assertTrue(Thread.interrupted());
            lock.unlock();
            return null;
        });
        other.obtain("key").lock();
        elsewhere(() -> {
            Thread.currentThread().interrupt();
            assertThrows(InterruptedException.class, lock::lockInterruptibly);
            return null;
        });
        other.obtain("key").unlock();
        assertTrue(lock.tryLock(LONG.toSeconds(), TimeUnit.SECONDS));
        lock.unlock();
    }

    @Test
    void aLossIsToldByUnlock() {
        Lock lock = one.obtain("key");
        lock.lock();
        force("key");
        assertThrows(ConcurrentModificationException.class, lock::unlock);
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertTrue(lock.tryLock());
        lock.unlock();
    }

    @Test
    void aLossIsToldByTryLock() throws Exception {
        Lock lock = registry(0, options.withSession(true)).obtain("key");
        lock.lock();
        assertTrue(lock.tryLock());
        force("key");
        until(() -> {
            boolean has = lock.tryLock();
            if (has) lock.unlock();
            return !has;
        }, "the loss is told");
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertTrue(lock.tryLock(), "it may take it anew");
        lock.unlock();
        assertTrue(other.obtain("key").tryLock());
        other.obtain("key").unlock();
    }

    @Test
    void electsLeaders() throws Exception {
        var leaders = new CopyOnWriteArraySet<String>();
        var revoked = new CopyOnWriteArrayList<String>();
        var first = initiator(0, "first", leaders, revoked);
        first.start();
        until(() -> leaders.equals(Set.of("first")), "the first leads");
        var second = initiator(1, "second", leaders, revoked);
        second.start();
        force("role");
        until(() -> revoked.contains("first") && leaders.size() == 1, "it does not, and one of them does again");
        boolean again = leaders.contains("first");
        (again ? first : second).stop();
        until(() -> leaders.equals(Set.of(again ? "second" : "first")), "the other leads");
        (again ? second : first).stop();
        until(leaders::isEmpty, "nobody leads");
    }

    private static void until(BooleanSupplier condition, String what) throws InterruptedException {
        for (long end = System.nanoTime() + LONG.toNanos(); !condition.getAsBoolean(); Thread.sleep(5)) {
            if (System.nanoTime() - end > 0) fail("not in a minute: " + what);
        }
    }

    private LockRegistryLeaderInitiator initiator(int proxy, String id, Set<String> leaders, List<String> revoked) {
        var candidate = new DefaultCandidate(id, "role") {
            @Override
            public void onGranted(Context context) {
                leaders.add(id);
            }

            @Override
            public void onRevoked(Context context) {
                leaders.remove(id);
                revoked.add(id);
            }
        };
        // The loss of a session is known at once.
        var initiator = new LockRegistryLeaderInitiator(registry(proxy, options.withSession(true)), candidate);
        initiator.setHeartBeatMillis(100);
        initiator.setBusyWaitMillis(100);
        return initiator;
    }
}
