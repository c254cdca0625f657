import io.lettuce.core.*;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** What an application does with Lettuce, whose threads share one connection: see ../doc.go. */
public final class LettuceSmoke {
    record Verb(String name) implements ProtocolKeyword {
        @Override public byte[] getBytes() { return name.getBytes(); }
    }

    private final RedisClient client = RedisClient.create();
    private final StatefulRedisConnection<String, String> shared;

    LettuceSmoke(ProtocolVersion protocol) {
        client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
        shared = client.connect(uri().build());
    }

    static RedisURI.Builder uri() { return RedisURI.builder().withHost(Checks.HOST).withPort(Checks.PORT); }

    StatefulRedisConnection<String, String> open() { return client.connect(uri().build()); }

    RedisCommands<String, String> r() { return shared.sync(); }

    static CommandArgs<String, String> args(String... words) {
        var args = new CommandArgs<>(StringCodec.UTF8);
        for (String w : words) args.add(w);
        return args;
    }

    static Long number(RedisCommands<String, String> r, String verb, String... words) {
        return r.dispatch(new Verb(verb), new IntegerOutput<>(StringCodec.UTF8), args(words));
    }

    static List<Object> list(RedisCommands<String, String> r, String verb, String... words) {
        return r.dispatch(new Verb(verb), new NestedMultiOutput<>(StringCodec.UTF8), args(words));
    }

    void strings() {
        try (var c = client.connect(ByteArrayCodec.INSTANCE, uri().build())) {
            byte[] binary = Checks.bytes(256);
            c.sync().set(binary, binary);
            Checks.want(Arrays.equals(c.sync().get(binary), binary), "other bytes");
        }
        Checks.want(r().get("none") == null, r().get("none"));
        r().hset("hash", Map.of("a", "1", "b", "2"));
        Checks.want(r().hgetall("hash").equals(Map.of("a", "1", "b", "2")), r().hgetall("hash"));
        r().zadd("zset", 1.5, "x");
        Checks.want(r().zrangeWithScores("zset", 0, -1).get(0).getScore() == 1.5, r().zrangeWithScores("zset", 0, -1));
    }

    void pipeline() throws Exception {
        List<RedisFuture<Long>> all = new ArrayList<>();
        for (int i = 0; i < 1000; i++) all.add(shared.async().incr("n"));
        Checks.want(all.get(999).get(5, TimeUnit.SECONDS) == 1000, all.get(999).get());
    }

    void transaction() {
        try (var c = open()) {
            for (boolean meddle : new boolean[] {false, true}) {
                c.sync().watch("watched");
                if (meddle) r().set("watched", "theirs");
                c.sync().multi();
                c.sync().set("watched", "mine");
                Checks.want(c.sync().exec().wasDiscarded() == meddle, meddle);
            }
        }
    }

    void blocking() throws Exception {
        try (var c = open()) {
            Checks.want(c.sync().blpop(0.1, "queue") == null, "an element");
            var got = c.async().blpop(5, "queue");
            Thread.sleep(100);
            r().rpush("queue", "late");
            Checks.want(got.get(5, TimeUnit.SECONDS).getValue().equals("late"), got.get());
        }
    }

    void pubsub() throws Exception {
        try (var sub = client.connectPubSub(uri().build())) {
            var got = new CompletableFuture<String>();
            sub.addListener(new RedisPubSubAdapter<>() {
                @Override public void message(String channel, String message) { got.complete(message); }
            });
            sub.sync().subscribe("channel");
            r().publish("channel", "m");
            Checks.want(got.get(5, TimeUnit.SECONDS).equals("m"), got);
            sub.sync().unsubscribe("channel");
            Checks.want(sub.sync().ping().equals("PONG"), "another answer");
        }
    }

    void script() throws Exception {
        r().scriptFlush();
        String sha = r().digest(Checks.SCRIPT);
        Checks.refused("NOSCRIPT", () -> r().evalsha(sha, ScriptOutputType.MULTI, new String[] {"counted"}, "x"));
        List<Object> got = r().eval(Checks.SCRIPT, ScriptOutputType.MULTI, new String[] {"counted"}, "x");
        Checks.want(got.equals(List.of("counted", "x", 1L)), got);
        got = r().evalsha(sha, ScriptOutputType.MULTI, new String[] {"counted"}, "x");
        Checks.want(got.equals(List.of("counted", "x", 2L)), got);
    }

    void scan() {
        for (int i = 0; i < 500; i++) r().set("scan:" + i, "x");
        Set<String> seen = new HashSet<>();
        var it = ScanIterator.scan(r(), ScanArgs.Builder.matches("scan:*").limit(50));
        while (it.hasNext()) seen.add(it.next());
        Checks.want(seen.size() == 500, seen.size());
    }

    void select() {
        try (var c = client.connect(uri().withDatabase(3).build())) {
            c.sync().set("only", "three");
            Checks.want(r().get("only") == null, r().get("only"));
            c.sync().select(0);
            Checks.want(c.sync().get("only") == null, c.sync().get("only"));
        }
    }

    void auth() throws Exception {
        try (var c = client.connect(uri().withAuthentication("app", "pw").build())) {
            Checks.want(c.sync().aclWhoami().equals("app"), c.sync().aclWhoami());
            c.sync().set("app:1", "x");
            Checks.refused("NOPERM", () -> c.sync().set("other", "x"));
        }
    }

    void large() {
        try (var c = client.connect(ByteArrayCodec.INSTANCE, uri().build())) {
            byte[] value = Checks.bytes(5 << 20);
            c.sync().set("large".getBytes(), value);
            Checks.want(Arrays.equals(c.sync().get("large".getBytes()), value), "other bytes");
        }
    }

    void locks() throws Exception {
        List<Object> grant = list(r(), "LOCK", "job", "30s");
        Checks.want(grant.size() == 4 && (Long) grant.get(0) > 0 && grant.get(3).equals(1L), grant);
        List<Object> held = list(r(), "LOCK", "job", "30s", "OWNER", "you");
        // A null array is an empty list to this output, the null of RESP3 an element.
        Checks.want(held.isEmpty() || held.size() == 1 && held.get(0) == null, held);
        Checks.want(number(r(), "RENEW", "job", "20s") <= 20000, "a longer validity");
        Checks.want(number(r(), "UNLOCK", "job") == 1, "not free");
        Checks.refused("LOCKLOST", () -> number(r(), "RENEW", "job", "30s", "you"));
    }

    void reconnect() throws Exception {
        r().set("kept", "1");
        Checks.askRestart();
        Checks.want(r().get("kept").equals("1"), r().get("kept"));
    }

    public static void main(String[] args) {
        for (String name : System.getenv("PROTOCOLS").split(" ")) {
            var s = new LettuceSmoke(name.equals("resp3") ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2);
            s.r().flushall();
            new Checks().add("strings", s::strings).add("pipeline", s::pipeline).add("transaction", s::transaction).add("blocking", s::blocking)
                .add("pubsub", s::pubsub).add("script", s::script).add("scan", s::scan).add("select", s::select).add("auth", s::auth)
                .add("large", s::large).add("locks", s::locks).add("reconnect", s::reconnect).run(name);
            s.shared.close();
        }
        System.exit(0);
    }
}
