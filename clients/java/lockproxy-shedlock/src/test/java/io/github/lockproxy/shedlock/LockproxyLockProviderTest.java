package io.github.lockproxy.shedlock;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.lockproxy.JedisLocks;
import io.github.lockproxy.Lock;
import io.github.lockproxy.LockOptions;
import io.github.lockproxy.Locks;
import java.time.Duration;
import java.time.Instant;
import java.util.UUID;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.ConnectionPool;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;

/** ShedLock's own tests of a provider, and what is ours, at the first proxy of PROXIES. */
class LockproxyLockProviderTest extends AbstractExtensibleLockProviderIntegrationTest {
    private final String prefix = UUID.randomUUID() + ":"; // all tests name their locks alike
    private ConnectionPool pool;
    private Locks locks;

    @BeforeEach
    void connect() {
        String all = System.getenv("PROXIES");
        Assumptions.assumeTrue(all != null, "PROXIES names no proxy");
        pool = new ConnectionPool(HostAndPort.from(all.split(" ")[0]), DefaultJedisClientConfig.builder().build());
        locks = JedisLocks.of(pool);
    }

    @AfterEach
    void close() {
        force(); // what theirs leave behind
        pool.close();
    }

    private void force() {
        try (var c = pool.getResource()) {
            c.executeCommand(new CommandArguments(() -> "LOCKCTL".getBytes()).add("FORCE").add(prefix + LOCK_NAME1));
        }
    }

    @Override
    protected ExtensibleLockProvider getLockProvider() {
        return new LockproxyLockProvider(locks, prefix, LockOptions.DEFAULT);
    }

    private Lock take(String name, Duration waitTime) throws InterruptedException {
        return locks.tryAcquire(prefix + name, LockOptions.DEFAULT.withWaitTime(waitTime));
    }

    @Override
    protected void assertLocked(String name) {
        try (Lock lock = take(name, Duration.ZERO)) {
            assertThat(lock).isNull();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    @Override
    protected void assertUnlocked(String name) {
        try (Lock lock = take(name, Duration.ofSeconds(1))) {
            assertThat(lock).isNotNull();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** Theirs has the lock for 50 ms, in which a busy machine does not answer. */
    @Test
    @Override
    public void shouldTimeout() {
        assertThat(getLockProvider().lock(lockConfig(LOCK_NAME1, Duration.ofSeconds(2), Duration.ZERO))).isNotEmpty();
        sleepFor(Duration.ofSeconds(2));
        assertUnlocked(LOCK_NAME1);
    }

    /** Theirs has the lock for 2 ms, which are over when the answer comes. */
    @Test
    @Override
    public void shouldNotBeAbleToExtendExpiredLock() {
        SimpleLock lock = getLockProvider().lock(lockConfig(LOCK_NAME1, Duration.ofSeconds(2), Duration.ZERO)).orElseThrow();
        sleepFor(Duration.ofSeconds(2));
        assertThat(lock.extend(Duration.ofSeconds(10), Duration.ZERO)).isEmpty();
        assertUnlocked(LOCK_NAME1);
    }

    @Test
    void isHeldForLongerThanTheTtl() throws InterruptedException {
        var provider = new LockproxyLockProvider(locks, prefix, LockOptions.DEFAULT.withTtl(Duration.ofSeconds(2)));
        SimpleLock lock = provider.lock(new LockConfiguration(Instant.now(), LOCK_NAME1, Duration.ofMinutes(10), Duration.ZERO)).orElseThrow();
        assertThat(take(LOCK_NAME1, Duration.ofSeconds(3))).isNull();
        lock.unlock();
        assertUnlocked(LOCK_NAME1);
    }

    @Test
    void aLossIsNoErrorOfTheTask() {
        SimpleLock lock = getLockProvider().lock(new LockConfiguration(Instant.now(), LOCK_NAME1, Duration.ofMinutes(10), Duration.ZERO)).orElseThrow();
        force();
        lock.unlock();
        assertUnlocked(LOCK_NAME1);
    }
}
