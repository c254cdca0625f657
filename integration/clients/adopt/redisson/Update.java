// Counts under a lock: see ../../doc.go.

import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

class Update {
    static final long LEASE = Long.parseLong(System.getenv().getOrDefault("LEASE", "10"));
    static final int UPDATES = Integer.parseInt(System.getenv("UPDATES"));

    interface Acquire {
        RLock get() throws Exception;
    }

    static Acquire of(RLock lock, String how) {
        return () -> {
            switch (how) {
                case "lease" -> lock.lock(LEASE, TimeUnit.SECONDS);
                case "try" -> {
                    if (!lock.tryLock(3, 10, TimeUnit.MINUTES)) throw new IllegalStateException("not acquired");
                }
                default -> lock.lock();
            }
            return lock;
        };
    }

    static Acquire acquire(RedissonClient r, String kind) {
        return switch (kind) {
            case "watchdog", "lease", "try" -> of(r.getLock("lock:redisson"), kind);
            case "spin" -> of(r.getSpinLock("lock:redisson"), kind);
            case "multi" -> () -> of(r.getMultiLock(r.getLock("lock:redisson:1"), r.getLock("lock:redisson:2")), kind).get();
            case "fenced" -> { // each token is more than that of every update before: else it is turned away
                var lock = r.getFencedLock("lock:redisson");
                var last = r.<String>getBucket("token", StringCodec.INSTANCE);
                yield () -> {
                    long token = lock.lockAndGetToken();
                    String before = last.get();
                    if (before == null || Long.parseLong(before) < token) {
                        last.set(String.valueOf(token));
                        return lock;
                    }
                    lock.unlock();
                    return null;
                };
            }
            case "write" -> of(r.getReadWriteLock("lock:redisson").writeLock(), "watchdog");
            case "read-write" -> { // who updates has read before, and what was written last is whole: else it is turned away
                var lock = r.getReadWriteLock("lock:redisson");
                var counter = r.<String>getBucket("counter", StringCodec.INSTANCE);
                var copy = r.<String>getBucket("copy", StringCodec.INSTANCE);
                yield () -> {
                    lock.readLock().lock();
                    try {
                        String written = copy.get();
                        if (written != null && !written.equals(counter.get())) return null;
                    } finally {
                        lock.readLock().unlock();
                    }
                    lock.writeLock().lock();
                    copy.set(String.valueOf(Long.parseLong(counter.get()) + 1));
                    return lock.writeLock();
                };
            }
            default -> throw new IllegalArgumentException(kind);
        };
    }

    public static void main(String[] args) throws Exception {
        var config = new Config();
        config.useSingleServer().setAddress("redis://" + System.getenv("REDIS"));
        var r = Redisson.create(config);
        var counter = r.<String>getBucket("counter", StringCodec.INSTANCE);
        var acquire = acquire(r, args[0]);
        var failures = new ConcurrentLinkedQueue<String>();
        Runnable update = () -> {
            try {
                var lock = acquire.get();
                if (lock == null) return;
                try {
                    if (System.getenv("HOLD") != null) {
                        System.out.println("held");
                        System.in.read();
                    }
                    counter.set(String.valueOf(Long.parseLong(counter.get()) + 1));
                } finally {
                    lock.unlock();
                }
            } catch (Exception e) {
                failures.add(e + (e.getCause() == null ? "" : " " + e.getCause()));
            }
        };
        counter.isExists();
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
