package io.github.lockproxy;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** The threads of all locks. They do not keep a program running, and end when there is nothing to do. */
final class Background {
    static final ThreadPoolExecutor THREADS = new ThreadPoolExecutor(0, Integer.MAX_VALUE, 5, TimeUnit.SECONDS, new SynchronousQueue<>(), work -> {
        Thread thread = new Thread(work, "lockproxy");
        thread.setDaemon(true);
        return thread;
    });

    /** Does work after so many ns, unless the future is cancelled before. */
    static CompletableFuture<Void> after(long ns, Runnable work) {
        var timer = new CompletableFuture<Void>().completeOnTimeout(null, Math.max(0, ns), TimeUnit.NANOSECONDS);
        timer.thenRunAsync(work, THREADS);
        return timer;
    }

    /** Has an answer fail after so many ns if it has not come before. */
    static void limit(CompletableFuture<Object> answer, long ns) {
        var timer = after(ns, () -> answer.completeExceptionally(new Client.Unanswered("no answer in " + ns / 1_000_000 + " ms", null)));
        answer.whenComplete((a, e) -> timer.cancel(false));
    }

    private Background() {}
}
