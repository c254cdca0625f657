// What Redisson's locks promise, at two servers that share them: see ../../doc.go.

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

class Locks {
    static final long LEASE = 2_000; // ms that the watchdog gives a lock
    static final long LONG = 60_000;
    static final long SOON = 1_000; // ms in which a message wakes a waiter

    interface Check {
        void run() throws Exception;
    }

    static final RedissonClient here = connect("REDIS"), there = connect("OTHER");
    static final Map<String, Check> checks = new LinkedHashMap<>();
    static final Map<String, Check> refusals = new LinkedHashMap<>();

    static RedissonClient connect(String variable) {
        var config = new Config();
        config.setLockWatchdogTimeout(LEASE);
        config.useSingleServer().setAddress("redis://" + System.getenv(variable)).setRetryAttempts(0);
        return Redisson.create(config);
    }

    static void must(boolean is, String what) {
        if (!is) throw new IllegalStateException("not: " + what);
    }

    // What another thread, with a lock of its own, is told.
    static <T> T elsewhere(Callable<T> f) {
        return CompletableFuture.supplyAsync(() -> {
            try {
                return f.call();
            } catch (Exception e) {
                throw new CompletionException(e);
            }
        }).join();
    }

    static void free(String name) {
        must(!there.getLock(name).isLocked(), "free elsewhere");
    }

    static void mustBeHeld(String name) {
        must(there.getLock(name).isLocked(), "locked elsewhere");
        must(!elsewhere(() -> there.getLock(name).tryLock()), "refused elsewhere");
    }

    static void excludes(RLock lock, String name) throws Exception {
        lock.lock();
        try {
            mustBeHeld(name);
        } finally {
            lock.unlock();
        }
        free(name);
    }

    // ms that a waiter at the other server waits after the holder has begun to release.
    static long woken(RLock held, RLock wanted) throws Exception {
        held.lock(LONG, TimeUnit.MILLISECONDS);
        var acquired = CompletableFuture.supplyAsync(() -> {
            wanted.lock();
            long at = System.nanoTime();
            wanted.unlock();
            return at;
        });
        Thread.sleep(SOON);
        must(!acquired.isDone(), "the waiter waits");
        long released = System.nanoTime();
        held.unlock();
        return (acquired.join() - released) / 1_000_000;
    }

    static {
        checks.put("lock", () -> excludes(here.getLock("lock:plain"), "lock:plain"));
        checks.put("spin", () -> excludes(here.getSpinLock("lock:spin"), "lock:spin"));
        checks.put("multi", () -> {
            excludes(here.getMultiLock(here.getLock("lock:multi:1"), here.getLock("lock:multi:2")), "lock:multi:2");
            free("lock:multi:1");
        });
        checks.put("multi-taken-back", () -> { // the second is held, so the first is given back
            there.getLock("lock:back:2").lock();
            var both = here.getMultiLock(here.getLock("lock:back:1"), here.getLock("lock:back:2"));
            must(!both.tryLock(100, LONG, TimeUnit.MILLISECONDS), "refused");
            free("lock:back:1");
            there.getLock("lock:back:2").unlock();
        });
        checks.put("multi-extended", () -> { // lease times and waits
            var both = here.getMultiLock(here.getLock("lock:wait:1"), here.getLock("lock:wait:2"));
            must(both.tryLock(LONG, LONG, TimeUnit.MILLISECONDS), "acquired");
            mustBeHeld("lock:wait:1");
            both.unlock();
            free("lock:wait:2");
        });
        checks.put("lease", () -> {
            var lock = here.getLock("lock:lease");
            lock.lock(LEASE, TimeUnit.MILLISECONDS);
            long left = there.getLock("lock:lease").remainTimeToLive();
            must(left > LEASE / 2 && left <= LEASE, "a lease of " + LEASE + " ms: " + left);
            Thread.sleep(LEASE + 200);
            free("lock:lease");
            try {
                lock.unlock();
                must(false, "an error, for it is not held any more");
            } catch (IllegalMonitorStateException e) {
            }
        });
        checks.put("try", () -> {
            var lock = here.getLock("lock:try");
            must(lock.tryLock(0, LONG, TimeUnit.MILLISECONDS), "acquired");
            long began = System.nanoTime();
            must(!elsewhere(() -> there.getLock("lock:try").tryLock(500, LONG, TimeUnit.MILLISECONDS)), "refused in the end");
            must(System.nanoTime() - began > 400_000_000, "waited for");
            lock.unlock();
            must(there.getLock("lock:try").tryLock(500, LONG, TimeUnit.MILLISECONDS), "acquired elsewhere");
            there.getLock("lock:try").unlock();
        });
        checks.put("woken-by-message", () -> {
            long took = woken(here.getLock("lock:woken"), there.getLock("lock:woken"));
            must(took < SOON, "woken soon: " + took + " ms");
            took = woken(there.getLock("lock:woken"), here.getLock("lock:woken"));
            must(took < SOON, "woken soon, the other way: " + took + " ms");
        });
        checks.put("watchdog", () -> {
            var lock = here.getLock("lock:watchdog");
            lock.lock();
            for (long until = System.nanoTime() + 3 * LEASE * 1_000_000; System.nanoTime() < until; Thread.sleep(50)) {
                mustBeHeld("lock:watchdog");
            }
            lock.unlock();
            free("lock:watchdog");
        });
        checks.put("watchdog-of-many", () -> { // renewed several at a time
            for (int i = 0; i < 5; i++) here.getLock("lock:many:" + i).lock();
            Thread.sleep(3 * LEASE);
            for (int i = 0; i < 5; i++) mustBeHeld("lock:many:" + i);
            for (int i = 0; i < 5; i++) here.getLock("lock:many:" + i).unlock();
            for (int i = 0; i < 5; i++) free("lock:many:" + i);
        });
        checks.put("died", () -> { // its holder is gone, and its watchdog
            var other = connect("REDIS");
            other.getLock("lock:died").lock();
            other.shutdown();
            mustBeHeld("lock:died");
            must(there.getLock("lock:died").tryLock(2 * LEASE, LONG, TimeUnit.MILLISECONDS), "free in the end");
            there.getLock("lock:died").unlock();
        });
        checks.put("entered-again", () -> {
            var lock = here.getLock("lock:again");
            lock.lock();
            lock.lock();
            must(lock.tryLock(), "entered for the third time");
            must(lock.isHeldByCurrentThread(), "held by its holder");
            must(lock.getHoldCount() == 3, "three holds: " + lock.getHoldCount());
            lock.unlock();
            lock.unlock();
            must(lock.getHoldCount() == 1, "one hold: " + lock.getHoldCount());
            mustBeHeld("lock:again");
            lock.unlock();
            free("lock:again");
        });
        checks.put("not-the-holder", () -> {
            here.getLock("lock:not").lock();
            must(elsewhere(() -> {
                try {
                    here.getLock("lock:not").unlock();
                    return false;
                } catch (IllegalMonitorStateException e) {
                    return true;
                }
            }), "another thread may not unlock");
            mustBeHeld("lock:not");
            here.getLock("lock:not").unlock();
        });
        checks.put("forced", () -> {
            here.getLock("lock:forced").lock(LONG, TimeUnit.MILLISECONDS);
            must(there.getLock("lock:forced").forceUnlock(), "there was a lock");
            must(!there.getLock("lock:forced").forceUnlock(), "there is none");
            free("lock:forced");
        });

        checks.put("fenced", () -> {
            var mine = here.getFencedLock("lock:fenced");
            var theirs = there.getFencedLock("lock:fenced");
            long last = 0;
            for (int i = 0; i < 3; i++) {
                long token = mine.lockAndGetToken(LONG, TimeUnit.MILLISECONDS);
                must(token > last, token + " is more than " + last);
                must(mine.getToken() == token && theirs.getToken() == token, "the token, while it is locked: " + mine.getToken());
                mustBeHeld("lock:fenced");
                must(elsewhere(() -> theirs.tryLockAndGetToken(1, LONG, TimeUnit.MILLISECONDS)) == null, "no token elsewhere");
                mine.unlock();
                last = theirs.tryLockAndGetToken(1, LONG, TimeUnit.MILLISECONDS);
                must(last > token, last + " elsewhere is more than " + token);
                theirs.unlock();
            }
            free("lock:fenced");
        });
        checks.put("fenced-plain", () -> excludes(here.getFencedLock("lock:fenced-plain"), "lock:fenced-plain"));
        checks.put("fenced-again", () -> {
            var lock = here.getFencedLock("lock:fenced-again");
            long first = lock.lockAndGetToken();
            long again = lock.tryLockAndGetToken();
            must(again >= first && lock.getToken() == again, again + " is no less than " + first);
            must(lock.getHoldCount() == 2, "two holds");
            lock.unlock();
            mustBeHeld("lock:fenced-again");
            lock.unlock();
            free("lock:fenced-again");
        });
        checks.put("fenced-watchdog", () -> {
            var lock = here.getFencedLock("lock:fenced-watchdog");
            long token = lock.lockAndGetToken();
            Thread.sleep(3 * LEASE);
            mustBeHeld("lock:fenced-watchdog");
            must(lock.getToken() == token, "the same token");
            lock.unlock();
        });
        checks.put("fenced-woken", () -> {
            long took = woken(here.getFencedLock("lock:fenced-woken"), there.getFencedLock("lock:fenced-woken"));
            must(took < SOON, "woken soon: " + took + " ms");
        });

        ReadWrite.addTo(checks);

        refusals.put("fair", () -> here.getFairLock("lock:fair").lock());
        refusals.put("token-of-nobody", () -> here.getFencedLock("lock:token-of-nobody").getToken());
        refusals.put("semaphore-permits", () -> here.getSemaphore("lock:semaphore-permits").trySetPermits(1));
        refusals.put("semaphore-added", () -> here.getSemaphore("lock:semaphore-added").addPermits(1));
        refusals.put("semaphore-released", () -> here.getSemaphore("lock:semaphore-released").release());
        refusals.put("semaphore", () -> here.getSemaphore("lock:semaphore").tryAcquire());
        refusals.put("expirable-semaphore", () -> here.getPermitExpirableSemaphore("lock:expirable-semaphore").trySetPermits(1));
        refusals.put("expirable-semaphore-added", () -> here.getPermitExpirableSemaphore("lock:expirable-semaphore-added").addPermits(1));
        refusals.put("expirable-semaphore-taken", () -> here.getPermitExpirableSemaphore("lock:expirable-semaphore-taken").tryAcquire());
        refusals.put("count-down", () -> here.getCountDownLatch("lock:count-down").countDown());
        refusals.put("counter", () -> here.getAtomicLong("lock:counter").incrementAndGet());
        refusals.put("count-down-latch", () -> here.getCountDownLatch("lock:count-down-latch").trySetCount(1));
    }

    static String cause(Throwable e) {
        while (e.getCause() != null) e = e.getCause();
        return e.toString().lines().findFirst().get();
    }

    public static void main(String[] args) {
        checks.forEach((name, check) -> {
            try {
                check.run();
                System.out.println("ok " + name);
            } catch (Throwable e) {
                System.out.println("failed " + name + ": " + cause(e));
            }
        });
        refusals.forEach((name, check) -> {
            try {
                check.run();
                System.out.println("taken " + name);
            } catch (Throwable e) {
                System.out.println((cause(e).contains("ADOPTREFUSED") ? "refused " : "failed ") + name + ": " + cause(e));
            }
        });
        System.exit(0);
    }
}
