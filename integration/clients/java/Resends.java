import java.time.Duration;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;

/** Takes and gives back a lock over and over, and says when. */
class Resends {
    public static void main(String[] args) {
        String[] proxy = System.getenv("PROXY").split(":");
        var at = new HostAndPort(proxy[0], Integer.parseInt(proxy[1]));
        String who = System.getenv("WHO");
        long end = System.nanoTime() + Long.parseLong(System.getenv("SECONDS")) * 1_000_000_000L;
        try (var jedis = new JedisPooled(at, DefaultJedisClientConfig.builder().socketTimeoutMillis(200).build())) {
            while (System.nanoTime() < end) {
                Lock lock = Lock.acquire(jedis, "job", Duration.ofSeconds(30), Duration.ofSeconds(20), Duration.ofMillis(100));
                System.out.println(who + " locked " + lock.fence());
                System.out.println(who + " unlocking");
                lock.release();
            }
        }
    }
}
