// A service that counts the views of a page, as it is written first: the lock is taken, the number read, one more
// written, the lock given back. See ../../doc.go.

import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

class PageViews {
    public static void main(String[] args) throws Exception {
        var config = new Config();
        config.useSingleServer().setAddress("redis://" + System.getenv("REDIS"));
        RedissonClient redisson = Redisson.create(config);
        RBucket<String> views = redisson.getBucket("counter", StringCodec.INSTANCE);

        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 1024);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", request -> {
            String page;
            int status = 200;
            try {
                RLock lock = redisson.getLock("lock:views");
                lock.lock();
                try {
                    long n = Long.parseLong(views.get());
                    views.set(String.valueOf(n + 1));
                    page = "You are visitor " + (n + 1) + "\n";
                } finally {
                    lock.unlock();
                }
            } catch (Exception e) {
                status = 500;
                page = e + "\n";
            }
            byte[] body = page.getBytes();
            request.sendResponseHeaders(status, body.length);
            request.getResponseBody().write(body);
            request.close();
        });
        server.start();
        views.isExists();
        System.out.println("http://127.0.0.1:" + server.getAddress().getPort());
        System.in.read(); // until the test ends
        System.exit(0);
    }
}
