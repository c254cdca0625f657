package io.github.lockproxy;

import static org.junit.jupiter.api.Assertions.fail;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import io.lettuce.core.SslVerifyMode;
import io.lettuce.core.protocol.ProtocolVersion;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.Assumptions;
import redis.clients.jedis.ConnectionPool;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.exceptions.JedisDataException;

/**
 * What the tests run against: two proxies on the same lock nodes, whose addresses are in PROXIES, and one that speaks TLS, where a user app with the password pw may
 * use the keys app:*.
 */
final class World {
    static final Duration LONG = Duration.ofMinutes(1); // a lease that no test waits for the end of, and how long a test waits for what must come
    static final Duration SOON = LONG.dividedBy(2); // well before the end of such a lease

    record Address(String host, int port) {
        static Address of(String s) {
            int colon = s.lastIndexOf(':');
            return new Address(s.substring(0, colon), Integer.parseInt(s.substring(colon + 1)));
        }
    }

    static Address proxy(int i) {
        String all = System.getenv("PROXIES");
        Assumptions.assumeTrue(all != null, "PROXIES names no two proxies");
        return Address.of(all.split(" ")[i]);
    }

    /** Where a client connects to, and how. */
    record Settings(Address to, Duration timeout, boolean secure, int database) {
        static Settings at(Address to) {
            return new Settings(to, null, false, 0);
        }

        /** At the proxy of TLS, as its user. */
        static Settings overTls() {
            return new Settings(Address.of(System.getenv("TLS_PROXY")), Duration.ofSeconds(10), true, 3);
        }

        Settings timeout(Duration timeout) {
            return new Settings(to, timeout, secure, database);
        }
    }

    /** Locks and what is to be closed with them. */
    record Opened(Locks locks, AutoCloseable client) implements AutoCloseable {
        @Override
        public void close() throws Exception {
            locks.close();
            client.close();
        }
    }

    enum Kind {
        JEDIS_RESP2, JEDIS_RESP3, LETTUCE_RESP2, LETTUCE_RESP3;

        Opened open(Settings s) throws Exception {
            return name().startsWith("JEDIS") ? jedis(s) : lettuce(s);
        }

        private Opened jedis(Settings s) throws Exception {
            var config = DefaultJedisClientConfig.builder().protocol(this == JEDIS_RESP2 ? RedisProtocol.RESP2 : RedisProtocol.RESP3).database(s.database);
            if (s.timeout != null) config.socketTimeoutMillis((int) s.timeout.toMillis());
            if (s.secure) config.ssl(true).sslSocketFactory(trusting().getSocketFactory()).user("app").password("pw");
            var few = new ConnectionPoolConfig();
            few.setMaxTotal(1); // neither a LOCK that waits nor a session is to take it
            var pool = new ConnectionPool(new HostAndPort(s.to.host, s.to.port), config.build(), few);
            return new Opened(JedisLocks.of(pool), pool);
        }

        private Opened lettuce(Settings s) {
            var uri = RedisURI.builder().withHost(s.to.host).withPort(s.to.port).withDatabase(s.database);
            if (s.timeout != null) uri.withTimeout(s.timeout);
            if (s.secure) uri.withSsl(true).withVerifyPeer(SslVerifyMode.FULL).withAuthentication("app", "pw");
            var options = ClientOptions.builder().protocolVersion(this == LETTUCE_RESP2 ? ProtocolVersion.RESP2 : ProtocolVersion.RESP3);
            if (s.secure) options.sslOptions(SslOptions.builder().jdkSslProvider().trustManager(new File(System.getenv("TLS_CA"))).build());
            var client = RedisClient.create();
            client.setOptions(options.build());
            return new Opened(LettuceLocks.of(client, uri.build()), () -> client.shutdown(Duration.ZERO, Duration.ofSeconds(5)));
        }
    }

    private static SSLContext trusting() throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (var pem = new FileInputStream(System.getenv("TLS_CA"))) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    static void until(BooleanSupplier condition, String what) {
        for (long end = System.nanoTime() + LONG.toNanos(); !condition.getAsBoolean();) {
            if (System.nanoTime() - end > 0) fail(what);
            try {
                Thread.sleep(5);
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        }
    }

    /** Looks at locks, and takes them away, as an operator does. */
    static final class Look implements AutoCloseable {
        private final Jedis jedis;

        Look() {
            Address to = proxy(0);
            jedis = new Jedis(new HostAndPort(to.host, to.port), DefaultJedisClientConfig.builder().socketTimeoutMillis((int) LONG.toMillis()).build());
        }

        private Object lockctl(String... words) {
            for (long end = System.nanoTime() + LONG.toNanos();;) {
                try {
                    return jedis.sendCommand(() -> "LOCKCTL".getBytes(), words);
                } catch (JedisDataException e) {
                    if (System.nanoTime() - end > 0) throw e; // a busy machine has no quorum for a while
                }
            }
        }

        /** The owner of a lock; null: it is free. */
        String holder(String name) {
            var info = (List<?>) lockctl("INFO", name);
            for (int i = 0; info != null && i < info.size(); i += 2) {
                if (info.get(i) instanceof byte[] key && new String(key).equals("owner")) return info.get(i + 1) == null ? null : new String((byte[]) info.get(i + 1));
            }
            return null;
        }

        int waiting(String name) {
            return ((List<?>) lockctl("WAITERS", name)).size();
        }

        void force(String name) {
            lockctl("FORCE", name);
        }

        @Override
        public void close() {
            jedis.close();
        }
    }

    /** Another process that has a lock, see Holder. It says its fence, and the end of its validity whenever that moves. */
    static final class HolderProcess implements AutoCloseable {
        private final Process process;
        private final BufferedReader out;
        final long fence;

        HolderProcess(Kind kind, String name, Duration ttl, String how) throws IOException {
            process = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-cp",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")), Holder.class.getName(), kind.name(), name, ttl.toString(), how)
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            out = process.inputReader();
            fence = says();
        }

        private long says() throws IOException {
            String line = out.readLine();
            if (line == null) throw new IOException("the holder has ended");
            return Long.parseLong(line);
        }

        /** One that has been renewed for longer than its ttl. */
        static HolderProcess thatHoldsOn(Kind kind, String name, Duration ttl) throws IOException {
            for (int i = 0; i < 10; i++) { // on a busy machine one may lose its lock
                var holder = new HolderProcess(kind, name, ttl, "renew");
                try {
                    for (int j = 0; j < 5; j++) holder.says();
                    return holder;
                } catch (IOException e) {
                    holder.close();
                }
            }
            return fail("no holder holds on");
        }

        /** Kills it with -9, and returns the last that it said, or 0. */
        long kill() throws Exception {
            process.toHandle().destroyForcibly(); // which leaves what it has said to be read
            process.waitFor();
            long last = 0;
            for (String line; (line = out.readLine()) != null;) last = Long.parseLong(line);
            return last;
        }

        @Override
        public void close() {
            process.destroyForcibly();
        }
    }

    /** Forwards connections to a proxy. */
    static final class Link implements AutoCloseable {
        private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        private final List<Socket> ends = new CopyOnWriteArrayList<>();
        private volatile boolean silent;
        private volatile Address to = proxy(0);

        Link() throws IOException {
            start(() -> {
                while (true) {
                    Socket near = listener.accept();
                    Socket far = new Socket(to.host, to.port);
                    ends.addAll(List.of(near, far));
                    start(() -> copy(near, far));
                    start(() -> copy(far, near));
                }
            });
        }

        Address address() {
            return new Address("127.0.0.1", listener.getLocalPort());
        }

        private interface Work {
            void run() throws IOException;
        }

        private static void start(Work work) {
            var thread = new Thread(() -> {
                try {
                    work.run();
                } catch (IOException e) {
                    // it is closed
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        private void copy(Socket from, Socket to) throws IOException {
            byte[] buffer = new byte[65536];
            try (from; to) {
                for (int n; (n = from.getInputStream().read(buffer)) >= 0;) {
                    if (!silent) to.getOutputStream().write(buffer, 0, n);
                }
            } finally {
                ends.removeAll(List.of(from, to));
            }
        }

        void fallSilent() {
            silent = true;
        }

        /** New connections lead to that proxy. */
        void leadTo(Address to) {
            this.to = to;
        }

        int connections() {
            return ends.size() / 2;
        }

        /** Ends all connections. */
        void cut() throws IOException {
            for (Socket end : new ArrayList<>(ends)) end.close();
        }

        @Override
        public void close() throws IOException {
            listener.close();
            cut();
        }
    }

    private World() {}
}
