package io.github.lockproxy;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/** Locks on a client of Lettuce. */
public final class LettuceLocks {
    /**
     * Locks on connections to uri that are made with the client's options and resources. One is for all commands that are answered at once. A LOCK that waits, and a
     * session, has a connection of its own.
     */
    public static Locks of(RedisClient client, RedisURI uri) {
        return new Locks(new Shared(client, uri));
    }

    private LettuceLocks() {}

    private static Throwable failure(Throwable e) {
        for (Throwable t = e; t != null; t = t.getCause()) { // what is answered to AUTH is inside of another
            if (t instanceof RedisCommandExecutionException) return new Client.Refused(t.getMessage(), e);
        }
        Throwable cause = Client.cause(e);
        return cause instanceof RedisException || cause instanceof IOException ? new Client.Unanswered(cause.getMessage(), cause) : cause;
    }

    private static final class Shared implements Client {
        private static final long LONGEST_TIMEOUT = 10_000_000_000L; // Lettuce's own is a minute

        private final RedisClient client;
        private final RedisURI uri;
        private Conn shared; // null: none yet

        /**
         * Its client is another on the same resources, since this cannot be said of a connection: it is not made anew by itself,
         * where it would not have the lock, and its timeouts are ours.
         */
        Shared(RedisClient of, RedisURI uri) {
            this.uri = uri;
            client = RedisClient.create(of.getResources(), uri);
            client.setOptions(of.getOptions().mutate().autoReconnect(false).disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
                .timeoutOptions(TimeoutOptions.builder().timeoutCommands(false).build()).build());
        }

        @Override
        public CompletableFuture<Object> send(List<String> command, long patience) {
            Conn c;
            synchronized (this) {
                if (shared == null || shared.closed().isDone()) shared = open();
                c = shared;
            }
            return c.send(command, patience);
        }

        @Override
        public Conn open() {
            return new Own(client, uri);
        }

        @Override
        public long timeout() {
            long timeout = uri.getTimeout().toNanos();
            return timeout > 0 ? Math.min(timeout, LONGEST_TIMEOUT) : LONGEST_TIMEOUT;
        }

        @Override
        public synchronized void close() {
            if (shared != null) shared.close();
        }
    }

    private record Verb(String name) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return name.getBytes(StandardCharsets.US_ASCII);
        }
    }

    private static final class Own implements Client.Conn {
        private final CompletableFuture<StatefulRedisConnection<String, String>> made = new CompletableFuture<>();
        private final CompletableFuture<String> closed = new CompletableFuture<>();
        private final Set<CompletableFuture<Object>> due = ConcurrentHashMap.newKeySet(); // answers that are still to come

        Own(RedisClient client, RedisURI uri) {
            CompletableFuture<StatefulRedisConnection<String, String>> connecting;
            try {
                connecting = client.connectAsync(StringCodec.UTF8, uri).toCompletableFuture();
            } catch (RuntimeException e) { // the client is closed
                connecting = CompletableFuture.failedFuture(e);
            }
            connecting.whenComplete((c, e) -> {
                if (e == null) watch(c);
                else end(failure(e));
            });
        }

        private void watch(StatefulRedisConnection<String, String> c) {
            c.addListener(new RedisConnectionStateListener() {
                @Override
                public void onRedisDisconnected(RedisChannelHandler<?, ?> connection) {
                    end(new Client.Unanswered("the other side has closed it", null));
                }
            });
            made.complete(c);
            if (!c.isOpen()) end(new Client.Unanswered("the other side has closed it", null));
            if (closed.isDone()) c.closeAsync();
        }

        @Override
        public CompletableFuture<Object> send(List<String> command, long patience) {
            var answer = new CompletableFuture<Object>();
            due.add(answer);
            answer.whenComplete((a, e) -> {
                due.remove(answer);
                if (e instanceof Client.Unanswered) end(e);
            });
            made.whenComplete((c, e) -> {
                if (e != null) answer.completeExceptionally(e);
                else if (!closed.isDone()) write(c, command, answer, patience);
                if (closed.isDone()) answer.completeExceptionally(new Client.Unanswered(closed.join(), null));
            });
            return answer;
        }

        private void write(StatefulRedisConnection<String, String> c, List<String> command, CompletableFuture<Object> answer, long patience) {
            Background.limit(answer, patience);
            var args = new CommandArgs<>(StringCodec.UTF8);
            command.subList(1, command.size()).forEach(args::add);
            boolean lock = command.get(0).startsWith("LOCK");
            CommandOutput<String, String, ?> output = lock ? new NestedMultiOutput<>(StringCodec.UTF8) : new IntegerOutput<>(StringCodec.UTF8);
            c.async().dispatch(new Verb(command.get(0)), output, args).whenComplete((reply, e) -> {
                if (e != null) answer.completeExceptionally(failure(e));
                // A null array is an empty list to this output, the null of RESP3 an element.
                else if (reply instanceof List<?> list && (list.isEmpty() || list.get(0) == null)) answer.complete(null);
                else answer.complete(reply);
            });
        }

        private void end(Throwable why) {
            if (!closed.complete(String.valueOf(why.getMessage()))) return;
            due.forEach(answer -> answer.completeExceptionally(why));
            if (!made.completeExceptionally(why)) made.thenAccept(StatefulRedisConnection::closeAsync);
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
