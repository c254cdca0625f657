import java.time.Duration;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

/** A lock of lockproxy, ours until the time (of System.nanoTime), over connections that break. fence grows with every holder. */
public record Lock(UnifiedJedis jedis, String name, String owner, long fence, long until) {
    private static final ProtocolCommand LOCK = "LOCK"::getBytes;
    private static final ProtocolCommand UNLOCK = "UNLOCK"::getBytes;

    /** Waits for the name, and returns null when patience is over. wait must be less than the client's socket timeout. */
    public static Lock acquire(UnifiedJedis jedis, String name, Duration ttl, Duration patience, Duration wait) {
        String owner = UUID.randomUUID().toString();
        long end = System.nanoTime() + patience.toNanos();
        try {
            while (true) {
                long asked = System.nanoTime();
                var reply = (List<?>) call(end, () -> jedis.sendCommand(LOCK, name, "" + ttl.toMillis(),
                    "OWNER", owner, "REQ", owner, "WAIT", "" + wait.toMillis()));
                long until = reply == null ? asked : asked + (long) reply.get(2) * 1_000_000;
                if (System.nanoTime() < until) return new Lock(jedis, name, owner, (long) reply.get(0), until);
                if (System.nanoTime() > end) return null;
            }
        } catch (JedisException e) { // it may be granted, and the reply lost
            try { jedis.sendCommand(UNLOCK, name, owner, "REQ", owner); } catch (JedisException ignored) { }
            throw e;
        }
    }

    /** Gives the lock back. LOCKLOST or NOTOWNER say that it was lost before. */
    public void release() {
        call(until, () -> jedis.sendCommand(UNLOCK, name, owner, "REQ", owner));
    }

    /** Sends a command until it is answered, since its REQ makes it count once. */
    private static Object call(long end, Supplier<Object> command) {
        while (true) {
            try {
                return command.get();
            } catch (JedisConnectionException e) {
                if (System.nanoTime() > end) throw e;
            } catch (JedisDataException e) {
                if (!e.getMessage().matches("(?s)(DRAINING|NOQUORUM).*") || System.nanoTime() > end) throw e;
            }
            LockSupport.parkNanos(100_000_000);
        }
    }
}
