package io.github.lockproxy;

import java.io.Closeable;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.Pool;

/** Locks on a pool of Jedis. */
public final class JedisLocks {
    /**
     * Locks on the pool of a JedisPooled, or of whatever else has one of connections: {@code JedisLocks.of(jedis.getPool())}. A LOCK that waits, and a
     * session, has a connection of its own, with the settings of the pool's but not counted by it.
     */
    public static Locks of(Pool<Connection> pool) {
        return new Locks(new Shared<>(pool, c -> c));
    }

    /** Locks on a JedisPool. */
    public static Locks of(JedisPool pool) {
        return new Locks(new Shared<>(pool, Jedis::getConnection));
    }

    private JedisLocks() {}

    private static CommandArguments arguments(List<String> command) {
        ProtocolCommand verb = command.get(0)::getBytes;
        var arguments = new CommandArguments(verb);
        command.subList(1, command.size()).forEach(arguments::add);
        return arguments;
    }

    private static Throwable failure(Throwable e) {
        if (e instanceof JedisDataException) return new Client.Refused(e.getMessage(), e);
        return e instanceof JedisException ? new Client.Unanswered(e.getMessage(), e) : e;
    }

    private static final class Shared<T extends Closeable> implements Client {
        private static final int LONGEST_TIMEOUT = 10_000; // ms

        private final Pool<T> pool;
        private final Function<T, Connection> connection;
        private volatile int timeout = 2000; // ms, as far as is known: it is of each connection

        Shared(Pool<T> pool, Function<T, Connection> connection) {
            this.pool = pool;
            this.connection = connection;
        }

        @Override
        public CompletableFuture<Object> send(List<String> command, long patience) {
            var answer = new CompletableFuture<Object>();
            Background.limit(answer, 2 * patience);
            Background.THREADS.execute(() -> {
                try {
                    answer.complete(call(command, answer));
                } catch (Throwable e) {
                    answer.completeExceptionally(failure(e));
                }
            });
            return answer;
        }

        private Object call(List<String> command, CompletableFuture<Object> answer) throws Exception {
            if (pool.isClosed()) throw new IllegalStateException("the pool is closed");
            try (T resource = pool.getResource()) {
                Connection c = connection.apply(resource);
                timeout = c.getSoTimeout();
                // Nobody would give back what is granted after waiting for the pool for too long.
                return answer.isDone() ? null : c.executeCommand(arguments(command));
            }
        }

        private Connection make() throws Exception {
            return connection.apply(pool.getFactory().makeObject().getObject());
        }

        @Override
        public Conn open() {
            return new Own(this::make);
        }

        @Override
        public long timeout() {
            int ms = timeout;
            return 1_000_000L * (ms > 0 ? Math.min(ms, LONGEST_TIMEOUT) : LONGEST_TIMEOUT);
        }

        @Override
        public void close() {}
    }

    private interface Maker {
        Connection make() throws Exception;
    }

    /** A connection outside of the pool. A thread reads from it all the time, and so notices its end. */
    private static final class Own implements Client.Conn {
        private final CompletableFuture<Connection> made = new CompletableFuture<>();
        private final CompletableFuture<String> closed = new CompletableFuture<>();
        private final Deque<CompletableFuture<Object>> due = new ArrayDeque<>(); // answers that are still to come

        Own(Maker maker) {
            Background.THREADS.execute(() -> {
                try {
                    Connection c = maker.make();
                    c.setSoTimeout(0);
                    if (made.complete(c)) read(c);
                    else c.disconnect(); // we have closed it meanwhile
                } catch (Throwable e) {
                    end(failure(e));
                }
            });
        }

        private void read(Connection c) {
            while (true) {
                Object answer;
                try {
                    answer = c.getUnflushedObject();
                } catch (JedisDataException e) {
                    answer = e;
                }
                CompletableFuture<Object> head;
                synchronized (this) {
                    head = due.poll();
                }
                if (head == null) throw new JedisConnectionException("an answer that nobody asked for: " + answer);
                if (answer instanceof JedisDataException e) head.completeExceptionally(failure(e));
                else head.complete(answer);
            }
        }

        @Override
        public CompletableFuture<Object> send(List<String> command, long patience) {
            var answer = new CompletableFuture<Object>();
            answer.whenComplete((a, e) -> {
                if (e instanceof Client.Unanswered) end(e);
            });
            made.whenComplete((c, e) -> {
                if (e != null) answer.completeExceptionally(e);
                else write(c, command, answer, patience);
            });
            return answer;
        }

        private synchronized void write(Connection c, List<String> command, CompletableFuture<Object> answer, long patience) {
            if (closed.isDone()) { // Jedis would connect again
                answer.completeExceptionally(new Client.Unanswered(closed.join(), null));
                return;
            }
            Background.limit(answer, patience);
            due.add(answer);
            try {
                c.sendCommand(arguments(command));
                c.getMany(0); // sends what is in its buffer
            } catch (JedisException e) {
                end(failure(e));
            }
        }

        private void end(Throwable why) {
            List<CompletableFuture<Object>> left;
            synchronized (this) {
                closed.complete(String.valueOf(why.getMessage()));
                left = List.copyOf(due);
                due.clear();
            }
            made.completeExceptionally(why);
            left.forEach(answer -> answer.completeExceptionally(why));
            Background.THREADS.execute(() -> made.thenAccept(Connection::disconnect));
        }

        @Override
        public CompletableFuture<?> made() {
            return made;
        }

        @Override
        public CompletableFuture<String> closed() {
            return closed;
        }

        @Override
        public void close() {
            end(new Client.Unanswered("we have closed it", null));
        }
    }
}
