// Has ShedLock's own tests run at the server that REDIS names: see ../../doc.go.

import static org.assertj.core.api.Assertions.assertThat;

import java.util.UUID;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.provider.redis.spring.ReactiveRedisLockProvider;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import net.javacrumbs.shedlock.test.support.AbstractLockProviderIntegrationTest;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;

class ShedLockTests {
    static final String[] ADDR = System.getenv("REDIS").split(":");
    static final RedisStandaloneConfiguration SERVER = new RedisStandaloneConfiguration(ADDR[0], Integer.parseInt(ADDR[1]));
    static final LettuceConnectionFactory LETTUCE = new LettuceConnectionFactory(SERVER);
    static final JedisConnectionFactory JEDIS = new JedisConnectionFactory(SERVER);

    static {
        LETTUCE.afterPropertiesSet();
        LETTUCE.start();
        JEDIS.afterPropertiesSet();
        JEDIS.start();
    }

    // The keys of one test. All name their locks alike, and some leave one behind: each has an environment of its own.
    static class Keys {
        final String environment = UUID.randomUUID().toString();
        final StringRedisTemplate redis;

        Keys(RedisConnectionFactory connections) {
            redis = new StringRedisTemplate(connections);
        }

        String of(String lock) {
            return "job-lock:" + environment + ":" + lock;
        }

        void mustBeLocked(String lock) {
            assertThat(redis.getExpire(of(lock))).isNotNegative();
            assertThat(redis.opsForValue().get(of(lock))).isNotEmpty();
        }

        void mustBeFree(String lock) {
            assertThat(redis.opsForValue().get(of(lock))).isNull();
        }
    }

    abstract static class Extensible extends AbstractExtensibleLockProviderIntegrationTest {
        final Keys keys;
        final RedisLockProvider provider;

        Extensible(RedisConnectionFactory connections) {
            keys = new Keys(connections);
            provider = new RedisLockProvider(connections, keys.environment);
        }

        @Override
        protected ExtensibleLockProvider getLockProvider() {
            return provider;
        }

        @Override
        protected void assertLocked(String lock) {
            keys.mustBeLocked(lock);
        }

        @Override
        protected void assertUnlocked(String lock) {
            keys.mustBeFree(lock);
        }
    }

    static class Lettuce extends Extensible {
        Lettuce() {
            super(LETTUCE);
        }
    }

    static class Jedis extends Extensible {
        Jedis() {
            super(JEDIS);
        }
    }

    // The reactive provider cannot extend locks.
    static class Reactive extends AbstractLockProviderIntegrationTest {
        final Keys keys = new Keys(LETTUCE);
        final ReactiveRedisLockProvider provider = new ReactiveRedisLockProvider(LETTUCE, keys.environment);

        @Override
        protected LockProvider getLockProvider() {
            return provider;
        }

        @Override
        protected void assertLocked(String lock) {
            keys.mustBeLocked(lock);
        }

        @Override
        protected void assertUnlocked(String lock) {
            keys.mustBeFree(lock);
        }
    }
}
