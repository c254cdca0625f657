import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import redis.clients.jedis.*;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.util.SafeEncoder;

/** What an application does with Jedis, through the proxy: see ../doc.go. */
public final class JedisSmoke {
    private final RedisProtocol protocol;
    private JedisPooled pool;

    JedisSmoke(RedisProtocol protocol) { this.protocol = protocol; }

    Jedis open(int db, String user, String password) {
        return new Jedis(new HostAndPort(Checks.HOST, Checks.PORT),
            DefaultJedisClientConfig.builder().protocol(protocol).database(db).user(user).password(password).build());
    }

    Jedis open() { return open(0, null, null); }

    static ProtocolCommand verb(String name) { return () -> SafeEncoder.encode(name); }

    void strings(Jedis r) {
        byte[] binary = Checks.bytes(256);
        r.set(binary, binary);
        Checks.want(Arrays.equals(r.get(binary), binary), "other bytes");
        Checks.want(r.get("none") == null, r.get("none"));
        r.hset("hash", Map.of("a", "1", "b", "2"));
        Checks.want(r.hgetAll("hash").equals(Map.of("a", "1", "b", "2")), r.hgetAll("hash"));
        r.zadd("zset", 1.5, "x");
        Checks.want(r.zrangeWithScores("zset", 0, -1).get(0).getScore() == 1.5, r.zrangeWithScores("zset", 0, -1));
    }

    void pipeline(Jedis r) {
        Pipeline p = r.pipelined();
        Response<Long> last = null;
        for (int i = 0; i < 1000; i++) last = p.incr("n");
        p.sync();
        Checks.want(last.get() == 1000, last.get());
    }

    void transaction(Jedis r) {
        try (Jedis other = open()) {
            for (boolean meddle : new boolean[] {false, true}) {
                r.watch("watched");
                if (meddle) other.set("watched", "theirs");
                Transaction tx = r.multi();
                tx.set("watched", "mine");
                List<Object> done = tx.exec();
                Checks.want((done == null) == meddle, done);
            }
        }
    }

    void blocking(Jedis r) throws Exception {
        Checks.want(r.blpop(0.1, "queue") == null, "an element");
        Thread later = new Thread(() -> {
            try (Jedis other = open()) {
                Thread.sleep(100);
                other.rpush("queue", "late");
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        later.start();
        Checks.want(r.blpop(5.0, "queue").getValue().equals("late"), "another element");
        later.join();
    }

    void pubsub(Jedis r) {
        StringBuilder got = new StringBuilder();
        try (Jedis sub = open()) {
            sub.subscribe(new JedisPubSub() {
                @Override public void onSubscribe(String channel, int n) { r.publish("channel", "m"); }
                @Override public void onMessage(String channel, String message) { got.append(message); unsubscribe(); }
            }, "channel");
            Checks.want(got.toString().equals("m"), got);
            sub.set("after", "1");
        }
    }

    void script(Jedis r) throws Exception {
        r.scriptFlush();
        Checks.refused("NOSCRIPT", () -> r.evalsha("ffffffffffffffffffffffffffffffffffffffff", 0));
        String sha = r.scriptLoad(Checks.SCRIPT);
        Object got = r.evalsha(sha, List.of("counted"), List.of("x"));
        Checks.want(got.equals(List.of("counted", "x", 1L)), got);
        Checks.want(((List<?>) r.eval(Checks.SCRIPT, List.of("counted"), List.of("x"))).get(2).equals(2L), "another count");
    }

    void scan(Jedis r) {
        for (int i = 0; i < 500; i++) r.set("scan:" + i, "x");
        Set<String> seen = new HashSet<>();
        String cursor = "0";
        do {
            var page = r.scan(cursor, new ScanParams().match("scan:*").count(50));
            seen.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals("0"));
        Checks.want(seen.size() == 500, seen.size());
    }

    void select(Jedis r) {
        try (Jedis other = open(3, null, null)) {
            other.set("only", "three");
            Checks.want(r.get("only") == null, r.get("only"));
            other.select(0);
            Checks.want(other.get("only") == null, other.get("only"));
        }
    }

    void auth() throws Exception {
        try (Jedis user = open(0, "app", "pw")) {
            Checks.want(user.aclWhoAmI().equals("app"), user.aclWhoAmI());
            user.set("app:1", "x");
            Checks.refused("NOPERM", () -> user.set("other", "x"));
        }
        Checks.refused("WRONGPASS", () -> open(0, "app", "wrong").ping());
    }

    void large(Jedis r) {
        byte[] value = Checks.bytes(5 << 20);
        r.set("large".getBytes(), value);
        Checks.want(Arrays.equals(r.get("large".getBytes()), value), "other bytes");
    }

    void locks(Jedis r) throws Exception {
        List<?> grant = (List<?>) r.sendCommand(verb("LOCK"), "job", "30s");
        Checks.want(grant.size() == 4 && (Long) grant.get(0) > 0 && grant.get(3).equals(1L), grant);
        Checks.want(r.sendCommand(verb("LOCK"), "job", "30s", "OWNER", "you") == null, "a grant");
        Checks.want((Long) r.sendCommand(verb("RENEW"), "job", "20s") <= 20000, "a longer validity");
        Checks.want(r.sendCommand(verb("UNLOCK"), "job").equals(1L), "not free");
        Checks.refused("LOCKLOST", () -> r.sendCommand(verb("RENEW"), "job", "30s", "you"));
    }

    /** A pool gives broken connections away once each; then it is well again. */
    void reconnect() throws Exception {
        pool.set("kept", "1");
        Checks.askRestart();
        for (int tries = 0; ; tries++) {
            try {
                Checks.want(pool.get("kept").equals("1"), pool.get("kept"));
                return;
            } catch (redis.clients.jedis.exceptions.JedisConnectionException e) {
                if (tries == 3) throw e;
            }
        }
    }

    public static void main(String[] args) {
        for (String name : System.getenv("PROTOCOLS").split(" ")) {
            var s = new JedisSmoke(name.equals("resp3") ? RedisProtocol.RESP3 : RedisProtocol.RESP2);
            s.pool = new JedisPooled(new HostAndPort(Checks.HOST, Checks.PORT), DefaultJedisClientConfig.builder().protocol(s.protocol).build());
            try (Jedis r = s.open()) {
                r.flushAll();
                new Checks().add("strings", () -> s.strings(r)).add("pipeline", () -> s.pipeline(r)).add("transaction", () -> s.transaction(r))
                    .add("blocking", () -> s.blocking(r)).add("pubsub", () -> s.pubsub(s.open())).add("script", () -> s.script(r)).add("scan", () -> s.scan(r))
                    .add("select", () -> s.select(r)).add("auth", s::auth).add("large", () -> s.large(r)).add("locks", () -> s.locks(r))
                    .add("reconnect", s::reconnect).run(name);
            }
        }
        System.exit(0);
    }
}
