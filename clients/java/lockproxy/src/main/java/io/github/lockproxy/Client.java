package io.github.lockproxy;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/**
 * What an adapter makes of a client library. It is safe for threads, and its methods return at once.
 *
 * <p>An answer is null, a Long or a List. It fails with a {@link Refused} that the proxy has answered, an {@link Unanswered} when
 * it is not known whether the command was executed, or another exception after which it is no use to try again.
 */
interface Client {
    /** Sends a command over connections that others use too, and gives up on the answer after so many ns. Before that it may take as long to have a connection. */
    CompletableFuture<Object> send(List<String> command, long patience);

    /** A connection for one user, which may still be about to be made. */
    Conn open();

    /** For how many ns the client waits for an answer. */
    long timeout();

    /** Ends the connections that are ours; the next command makes them anew. */
    void close();

    /** A connection, and never another after it. */
    interface Conn {
        /** Completes when the connection has been made. */
        CompletableFuture<?> made();

        /** Sends a command when the connection has been made; if the answer does not come in so many ns then, the connection is closed. */
        CompletableFuture<Object> send(List<String> command, long patience);

        /** Completes with the reason when the connection has ended, by either side. */
        CompletableFuture<String> closed();

        void close();
    }

    /** An error that the proxy has answered. Its first word says which. */
    final class Refused extends Exception {
        private static final long serialVersionUID = 1;

        Refused(String answer, Throwable cause) {
            super(answer, cause);
        }

        boolean is(String... words) {
            return List.of(words).contains(getMessage().split(" ", 2)[0]);
        }
    }

    /** It is not known whether a command was executed. */
    final class Unanswered extends Exception {
        private static final long serialVersionUID = 1;

        Unanswered(String why, Throwable cause) {
            super(why, cause);
        }
    }

    /** Whether the same command may do better when it is sent again. */
    static boolean isTransient(Throwable e) {
        return e instanceof Unanswered || e instanceof Refused r && r.is("NOQUORUM", "DRAINING", "UPSTREAMDOWN");
    }

    /** Whether e says that this owner does not have the lock any more. */
    static boolean isLoss(Throwable e) {
        return e instanceof Refused r && r.is("LOCKLOST", "NOTOWNER");
    }

    /** Why a future has failed. */
    static Throwable cause(Throwable e) {
        return e instanceof CompletionException && e.getCause() != null ? e.getCause() : e;
    }

    /** What to throw for e: with the exception of the client library as its cause. */
    static LockException failure(String what, Throwable e) {
        boolean ours = (e instanceof Refused || e instanceof Unanswered) && e.getCause() != null;
        return new LockException(what + ": " + e.getMessage(), ours ? e.getCause() : e);
    }
}
