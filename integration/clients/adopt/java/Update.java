// Counts under a lock: see ../../doc.go.

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ThreadLocalRandom;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.params.SetParams;

class Update {
    static final Duration TTL = Duration.ofSeconds(Long.parseLong(System.getenv().getOrDefault("LEASE", "10")));
    static final long PAUSE = 500; // ms between two tries to take a lock, about
    static final String RELEASE = "local mine = redis.call('get', KEYS[1]) == ARGV[1]\n"
            + "if mine then redis.call('del', KEYS[1]) end\nreturn mine";
    static final String HOST = System.getenv("REDIS").split(":")[0];
    static final int PORT = Integer.parseInt(System.getenv("REDIS").split(":")[1]);
    static final int UPDATES = Integer.parseInt(System.getenv("UPDATES"));

    interface Step {
        void run() throws Exception;
    }

    // Takes a lock and returns what gives it back.
    interface Acquire {
        Step get() throws Exception;
    }

    static void pause() throws InterruptedException {
        Thread.sleep(PAUSE / 2 + ThreadLocalRandom.current().nextLong(PAUSE));
    }

    static Acquire jedis(JedisPooled r) {
        return () -> {
            String mine = UUID.randomUUID().toString();
            while (r.set("lock:jedis", mine, SetParams.setParams().nx().px(TTL.toMillis())) == null) pause();
            return () -> mustHold(Long.valueOf(1).equals(r.eval(RELEASE, List.of("lock:jedis"), List.of(mine))));
        };
    }

    // All threads on one connection, as is usual with Lettuce.
    static Acquire lettuce() {
        var r = RedisClient.create(RedisURI.builder().withHost(HOST).withPort(PORT).withTimeout(Duration.ofMinutes(1)).build()).connect().sync();
        return () -> {
            String mine = UUID.randomUUID().toString();
            while (r.set("lock:lettuce", mine, SetArgs.Builder.nx().px(TTL)) == null) pause();
            return () -> {
                Boolean held = r.eval(RELEASE, ScriptOutputType.BOOLEAN, new String[] {"lock:lettuce"}, mine);
                mustHold(held);
            };
        };
    }

    static void mustHold(boolean held) {
        if (!held) throw new IllegalStateException("the lock was not held any more");
    }

    static LettuceConnectionFactory connections() {
        var c = new LettuceConnectionFactory(HOST, PORT);
        c.afterPropertiesSet();
        c.start();
        return c;
    }

    static Acquire spring(RedisLockType type) {
        var registry = new RedisLockRegistry(connections(), "lock:spring", TTL.toMillis());
        registry.setRedisLockType(type);
        return () -> {
            var lock = registry.obtain("counter");
            lock.lock();
            return lock::unlock;
        };
    }

    static Acquire shedlock() {
        var provider = new RedisLockProvider(connections(), "test");
        return () -> {
            while (true) {
                var lock = provider.lock(new LockConfiguration(Instant.now(), "counter", TTL, Duration.ZERO));
                if (lock.isPresent()) return () -> lock.get().unlock();
                pause();
            }
        };
    }

    public static void main(String[] args) throws Exception {
        var pool = new ConnectionPoolConfig();
        pool.setMaxTotal(UPDATES);
        var r = new JedisPooled(pool, HOST, PORT, 60_000);
        Acquire acquire = switch (args[0]) {
            case "jedis" -> jedis(r);
            case "lettuce" -> lettuce();
            case "spring-spin" -> spring(RedisLockType.SPIN_LOCK);
            case "spring-pubsub" -> spring(RedisLockType.PUB_SUB_LOCK);
            case "shedlock" -> shedlock();
            default -> throw new IllegalArgumentException(args[0]);
        };
        var failures = new ConcurrentLinkedQueue<String>();
        Runnable update = () -> {
            try {
                Step release = acquire.get();
                try {
                    if (System.getenv("HOLD") != null) {
                        System.out.println("held");
                        System.in.read();
                    }
                    r.set("counter", String.valueOf(Long.parseLong(r.get("counter")) + 1));
                } finally {
                    release.run();
                }
            } catch (Exception e) {
                failures.add(e + (e.getCause() == null ? "" : " " + e.getCause()));
            }
        };
        r.ping();
        System.out.println("ready");
        System.in.read();
        var threads = new Thread[UPDATES];
        for (int i = 0; i < UPDATES; i++) (threads[i] = new Thread(update)).start();
        for (Thread t : threads) t.join();
        for (String f : failures) System.out.println("failed: " + f);
        System.out.println("done " + (UPDATES - failures.size()));
        System.exit(0);
    }
}
