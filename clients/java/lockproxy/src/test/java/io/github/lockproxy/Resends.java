package io.github.lockproxy;

import java.time.Duration;

/** Takes and gives back a lock over and over, and says when: Resends KIND. */
final class Resends {
    public static void main(String[] args) throws Exception {
        String who = System.getenv("WHO");
        var settings = World.Settings.at(World.Address.of(System.getenv("PROXY"))).timeout(Duration.ofMillis(200));
        try (var opened = World.Kind.valueOf(args[0]).open(settings)) {
            opened.locks().acquire(who, Duration.ofSeconds(30), Duration.ofSeconds(20)).release(); // by then all classes are loaded
            long end = System.nanoTime() + Long.parseLong(System.getenv("SECONDS")) * 1_000_000_000;
            while (System.nanoTime() < end) {
                try (Lock lock = opened.locks().acquire("job", Duration.ofSeconds(30), Duration.ofSeconds(20))) {
                    System.out.println(who + " locked " + lock.fence());
                    System.out.println(who + " unlocking");
                }
            }
        }
    }

    private Resends() {}
}
