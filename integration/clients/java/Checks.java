import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What the programs of both clients have in common: see ../doc.go. */
final class Checks {
    interface Check { void run() throws Exception; }

    static final String HOST = System.getenv("PROXY").split(":")[0];
    static final int PORT = Integer.parseInt(System.getenv("PROXY").split(":")[1]);
    static final String SCRIPT = "return {KEYS[1], ARGV[1], redis.call('incr', KEYS[1])}";
    private static final List<String> ASKED = List.of(System.getenv("CHECKS").split(" "));
    private static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in));
    private final Map<String, Check> all = new LinkedHashMap<>();

    /** Adds a check, if it is asked for. */
    Checks add(String name, Check check) {
        if (ASKED.contains(name)) all.put(name, check);
        return this;
    }

    void run(String protocol) {
        all.forEach((name, check) -> {
            try {
                check.run();
                System.out.println("ok " + protocol + " " + name);
            } catch (Throwable e) {
                System.out.println("failed " + protocol + " " + name + ": " + e + " at " + e.getStackTrace()[0]);
            }
        });
    }

    static void want(boolean ok, Object got) {
        if (!ok) throw new AssertionError("got " + got);
    }

    static void refused(String word, Check check) throws Exception {
        try {
            check.run();
        } catch (Exception e) {
            if (e.getMessage().startsWith(word)) return;
            throw e;
        }
        throw new AssertionError("not refused with " + word);
    }

    static void askRestart() throws Exception {
        System.out.println("restart");
        IN.readLine();
    }

    static byte[] bytes(int n) {
        byte[] b = new byte[n];
        for (int i = 0; i < n; i++) b[i] = (byte) i;
        return b;
    }
}
