package io.github.lockproxy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Connections that take long to be made, by a server that is slow to greet. */
class ConnectingTest {
    @ParameterizedTest
    @EnumSource(names = {"JEDIS_RESP3", "LETTUCE_RESP3"})
    void interruptedMeanwhile(World.Kind kind) throws Exception {
        try (var server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
            var opened = kind.open(World.Settings.at(new World.Address("127.0.0.1", server.getLocalPort())))) {
            var thrown = new AtomicReference<Throwable>();
            var waiting = new Thread(() -> thrown.set(assertThrows(Throwable.class, () -> opened.locks().acquire("job", LockOptions.DEFAULT.withSession(true).withTtl(Duration.ofMillis(100))))));
            waiting.start();
            try (Socket own = server.accept()) {
                own.setSoTimeout((int) World.SOON.toMillis());
                byte[] some = new byte[4096];
                own.getInputStream().read(some);
                waiting.interrupt();
                waiting.join();
                assertEquals(InterruptedException.class, thrown.get().getClass());
                greetUntilItIsClosed(own, some);
            }
        }
    }

    /** Answers HELLO, and whatever comes behind it; that takes too long if the connection is not closed. */
    private static void greetUntilItIsClosed(Socket own, byte[] some) throws IOException {
        String answer = "%1\r\n$5\r\nproto\r\n:3\r\n";
        try {
            for (int n; answer != null; answer = n < 0 ? null : "+OK\r\n".repeat(commands(some, n))) {
                own.getOutputStream().write(answer.getBytes(StandardCharsets.US_ASCII));
                n = own.getInputStream().read(some);
            }
        } catch (SocketException e) {
            // it has been closed, with an answer on its way
        }
    }

    private static int commands(byte[] some, int n) {
        return (int) new String(some, 0, n, StandardCharsets.US_ASCII).chars().filter(c -> c == '*').count();
    }
}
