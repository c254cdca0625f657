package io.github.lockproxy;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.function.Supplier;

/** Connections that LOCKs have waited on, for the next ones that wait. */
final class Idle {
    private static final int MOST = 8;
    private static final long TIME = 1_000_000_000;

    private final Supplier<Client.Conn> open;
    private final Deque<Client.Conn> conns = new ArrayDeque<>(); // the first was used last

    Idle(Supplier<Client.Conn> open) {
        this.open = open;
    }

    synchronized Client.Conn take() {
        while (!conns.isEmpty()) {
            Client.Conn c = conns.pop();
            if (!c.closed().isDone()) return c;
        }
        return open.get();
    }

    /** Keeps a connection for a while, unless there are enough. One that is taken and put back meanwhile ends early. */
    synchronized void put(Client.Conn c) {
        if (conns.size() == MOST) {
            c.close();
            return;
        }
        conns.push(c);
        Background.after(TIME, () -> expire(c));
    }

    private synchronized void expire(Client.Conn c) {
        if (conns.remove(c)) c.close();
    }

    synchronized void close() {
        conns.forEach(Client.Conn::close);
        conns.clear();
    }
}
