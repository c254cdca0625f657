// What Redisson's read/write locks promise, at two servers that share them: see ../../doc.go.

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;

class ReadWrite {
    static RReadWriteLock here(String name) {
        return Locks.here.getReadWriteLock(name);
    }

    static RReadWriteLock there(String name) {
        return Locks.there.getReadWriteLock(name);
    }

    static boolean had(RLock lock) throws Exception { // by another thread
        return Locks.elsewhere(() -> {
            boolean is = lock.tryLock();
            if (is) lock.unlock();
            return is;
        });
    }

    static void mustBeFree(String name) throws Exception {
        Locks.must(!there(name).readLock().isLocked() && !there(name).writeLock().isLocked(), "free elsewhere");
        Locks.must(had(there(name).writeLock()), "it may be written elsewhere");
    }

    static void mustBeRead(String name) throws Exception {
        Locks.must(there(name).readLock().isLocked() && !there(name).writeLock().isLocked(), "read, elsewhere");
        Locks.must(had(there(name).readLock()), "it may be read elsewhere");
        Locks.must(!had(there(name).writeLock()), "nor written elsewhere");
    }

    static void mustBeWritten(String name) throws Exception {
        Locks.must(there(name).writeLock().isLocked() && !there(name).readLock().isLocked(), "written, elsewhere");
        Locks.must(!had(there(name).readLock()), "not read elsewhere");
        Locks.must(!had(there(name).writeLock()), "not written elsewhere");
    }

    static void mustThrow(RLock lock) {
        try {
            lock.unlock();
            Locks.must(false, "an error, for it is not held");
        } catch (IllegalMonitorStateException e) {
        }
    }

    static void addTo(Map<String, Locks.Check> checks) {
        checks.put("rw-read", () -> {
            var lock = here("lock:rw-read").readLock();
            lock.lock();
            mustBeRead("lock:rw-read");
            Locks.must(lock.isHeldByCurrentThread() && lock.getHoldCount() == 1, "held once");
            lock.unlock();
            mustBeFree("lock:rw-read");
        });
        checks.put("rw-write", () -> {
            var lock = here("lock:rw-write").writeLock();
            lock.lock();
            mustBeWritten("lock:rw-write");
            Locks.must(lock.isHeldByCurrentThread() && lock.getHoldCount() == 1, "held once");
            lock.unlock();
            mustBeFree("lock:rw-write");
        });
        checks.put("rw-readers", () -> { // the last one frees it
            var lock = here("lock:rw-readers").readLock();
            var other = there("lock:rw-readers").readLock();
            lock.lock();
            other.lock();
            lock.unlock();
            mustBeRead("lock:rw-readers");
            other.unlock();
            mustBeFree("lock:rw-readers");
        });
        checks.put("rw-again", () -> {
            for (var lock : new RLock[] {here("lock:rw-again").readLock(), here("lock:rw-again").writeLock()}) {
                lock.lock();
                lock.lock();
                Locks.must(lock.tryLock() && lock.getHoldCount() == 3, "held three times: " + lock.getHoldCount());
                lock.unlock();
                lock.unlock();
                Locks.must(lock.getHoldCount() == 1, "held once: " + lock.getHoldCount());
                Locks.must(!had(there("lock:rw-again").writeLock()), "not written elsewhere");
                lock.unlock();
                mustBeFree("lock:rw-again");
            }
        });
        checks.put("rw-downgrade", () -> {
            var lock = here("lock:rw-downgrade");
            lock.writeLock().lock();
            lock.readLock().lock();
            Locks.must(there("lock:rw-downgrade").writeLock().isLocked(), "written, elsewhere");
            Locks.must(!had(there("lock:rw-downgrade").readLock()) && !had(there("lock:rw-downgrade").writeLock()), "nobody else has it");
            lock.writeLock().unlock();
            mustBeRead("lock:rw-downgrade");
            lock.readLock().unlock();
            mustBeFree("lock:rw-downgrade");
        });
        checks.put("rw-inner-read", () -> {
            var lock = here("lock:rw-inner-read");
            lock.writeLock().lock();
            lock.readLock().lock();
            lock.readLock().unlock();
            mustBeWritten("lock:rw-inner-read");
            lock.writeLock().unlock();
            mustBeFree("lock:rw-inner-read");
        });
        checks.put("rw-upgrade", () -> { // Redisson has none, even for the only reader
            var lock = here("lock:rw-upgrade");
            lock.readLock().lock();
            Locks.must(!lock.writeLock().tryLock(), "refused while it reads");
            Locks.must(!Locks.there.getReadWriteLock("lock:rw-upgrade").writeLock().tryLock(), "nor elsewhere");
            mustBeRead("lock:rw-upgrade");
            lock.readLock().unlock();
            mustBeFree("lock:rw-upgrade");
        });
        checks.put("rw-lease", () -> {
            for (var lock : new RLock[] {here("lock:rw-lease").readLock(), here("lock:rw-lease").writeLock()}) {
                lock.lock(Locks.LEASE, TimeUnit.MILLISECONDS);
                long left = there("lock:rw-lease").writeLock().remainTimeToLive();
                Locks.must(left > Locks.LEASE / 2 && left <= Locks.LEASE, "a lease of " + Locks.LEASE + " ms: " + left);
                Thread.sleep(Locks.LEASE + 200);
                mustBeFree("lock:rw-lease");
            }
        });
        checks.put("rw-try", () -> {
            var lock = here("lock:rw-try").writeLock();
            Locks.must(lock.tryLock(0, Locks.LONG, TimeUnit.MILLISECONDS), "acquired");
            long began = System.nanoTime();
            Locks.must(!Locks.elsewhere(() -> there("lock:rw-try").readLock().tryLock(500, Locks.LONG, TimeUnit.MILLISECONDS)), "refused in the end");
            Locks.must(System.nanoTime() - began > 400_000_000, "waited for");
            lock.unlock();
            Locks.must(there("lock:rw-try").readLock().tryLock(500, Locks.LONG, TimeUnit.MILLISECONDS), "acquired elsewhere");
            there("lock:rw-try").readLock().unlock();
        });
        checks.put("rw-woken", () -> { // a reader by a writer, a writer by a writer, a writer by a reader
            var mine = here("lock:rw-woken");
            var theirs = there("lock:rw-woken");
            long took = Locks.woken(mine.writeLock(), theirs.readLock());
            Locks.must(took < Locks.SOON, "a reader is woken soon: " + took + " ms");
            took = Locks.woken(mine.writeLock(), theirs.writeLock());
            Locks.must(took < Locks.SOON, "a writer is woken soon: " + took + " ms");
            took = Locks.woken(theirs.readLock(), mine.writeLock());
            Locks.must(took < Locks.SOON, "a writer is woken soon by a reader: " + took + " ms");
        });
        checks.put("rw-all-woken", () -> { // all readers that wait are let in at once
            var writer = here("lock:rw-all").writeLock();
            writer.lock(Locks.LONG, TimeUnit.MILLISECONDS);
            var inside = new java.util.concurrent.CountDownLatch(6);
            var readers = new CompletableFuture<?>[6];
            for (int i = 0; i < readers.length; i++) {
                var lock = (i % 2 == 0 ? here("lock:rw-all") : there("lock:rw-all")).readLock();
                readers[i] = CompletableFuture.runAsync(() -> {
                    lock.lock();
                    inside.countDown();
                    try {
                        Locks.must(inside.await(30, TimeUnit.SECONDS), "all are inside at once");
                    } catch (InterruptedException e) {
                        throw new IllegalStateException(e);
                    } finally {
                        lock.unlock();
                    }
                }, run -> new Thread(run).start());
            }
            Thread.sleep(Locks.SOON);
            Locks.must(inside.getCount() == 6, "nobody reads beside the writer");
            writer.unlock();
            CompletableFuture.allOf(readers).join();
            mustBeFree("lock:rw-all");
        });
        checks.put("rw-watchdog", () -> {
            var lock = here("lock:rw-watchdog");
            lock.readLock().lock();
            for (long until = System.nanoTime() + 3 * Locks.LEASE * 1_000_000; System.nanoTime() < until; Thread.sleep(50)) {
                Locks.must(!had(there("lock:rw-watchdog").writeLock()), "not written elsewhere");
            }
            mustBeRead("lock:rw-watchdog");
            lock.readLock().unlock();
            lock.writeLock().lock();
            for (long until = System.nanoTime() + 3 * Locks.LEASE * 1_000_000; System.nanoTime() < until; Thread.sleep(50)) {
                Locks.must(!had(there("lock:rw-watchdog").readLock()), "not read elsewhere");
            }
            lock.writeLock().unlock();
            mustBeFree("lock:rw-watchdog");
        });
        checks.put("rw-watchdog-of-many", () -> { // threads that read one name, and several names, renewed together
            var inside = new java.util.concurrent.CountDownLatch(4);
            var end = new java.util.concurrent.CountDownLatch(1);
            var readers = new CompletableFuture<?>[4];
            for (int i = 0; i < readers.length; i++) {
                var lock = here("lock:rw-many:" + i / 2).readLock();
                readers[i] = CompletableFuture.runAsync(() -> {
                    lock.lock();
                    inside.countDown();
                    try {
                        end.await();
                        Locks.must(lock.isHeldByCurrentThread(), "each reads still");
                    } catch (InterruptedException e) {
                        throw new IllegalStateException(e);
                    } finally {
                        lock.unlock();
                    }
                }, run -> new Thread(run).start());
            }
            Locks.must(inside.await(30, TimeUnit.SECONDS), "all read");
            Thread.sleep(3 * Locks.LEASE);
            for (int i = 0; i < 2; i++) mustBeRead("lock:rw-many:" + i);
            end.countDown();
            CompletableFuture.allOf(readers).join();
            for (int i = 0; i < 2; i++) mustBeFree("lock:rw-many:" + i);
        });
        checks.put("rw-died", () -> { // its holder is gone, and its watchdog
            for (boolean writes : new boolean[] {false, true}) {
                var other = Locks.connect("REDIS");
                var lock = other.getReadWriteLock("lock:rw-died");
                (writes ? lock.writeLock() : lock.readLock()).lock();
                other.shutdown();
                Locks.must(!had(there("lock:rw-died").writeLock()), "held at first");
                var next = there("lock:rw-died").writeLock();
                Locks.must(next.tryLock(2 * Locks.LEASE, Locks.LONG, TimeUnit.MILLISECONDS), "free in the end");
                next.unlock();
            }
        });
        checks.put("rw-not-the-holder", () -> {
            var lock = here("lock:rw-not");
            lock.readLock().lock();
            mustThrow(lock.writeLock());
            Locks.elsewhere(() -> {
                mustThrow(here("lock:rw-not").readLock());
                return null;
            });
            mustBeRead("lock:rw-not");
            lock.readLock().unlock();
            mustBeFree("lock:rw-not");
        });
        checks.put("rw-forced", () -> {
            var lock = here("lock:rw-forced");
            lock.readLock().lock(Locks.LONG, TimeUnit.MILLISECONDS);
            Locks.elsewhere(() -> {
                lock.readLock().lock(Locks.LONG, TimeUnit.MILLISECONDS);
                return null;
            });
            Locks.must(!there("lock:rw-forced").writeLock().forceUnlock(), "nobody writes");
            Locks.must(there("lock:rw-forced").readLock().forceUnlock(), "there were readers");
            mustBeFree("lock:rw-forced");
            lock.writeLock().lock(Locks.LONG, TimeUnit.MILLISECONDS);
            Locks.must(!there("lock:rw-forced").readLock().forceUnlock(), "nobody reads");
            Locks.must(there("lock:rw-forced").writeLock().forceUnlock(), "there was a writer");
            mustBeFree("lock:rw-forced");
        });
    }
}
