package io.github.lockproxy;

import java.time.Duration;

/** Takes the lock NAME and keeps it: Holder KIND NAME TTL session|renew. It says its fence, and the end of its validity whenever that moves. */
final class Holder {
    public static void main(String[] args) throws Exception {
        Locks locks = World.Kind.valueOf(args[0]).open(World.Settings.at(World.proxy(0))).locks();
        Lock lock = locks.acquire(args[1], LockOptions.of(Duration.parse(args[2]), World.LONG).withSession(args[3].equals("session")));
        System.out.println(lock.fence());
        for (long last = 0; !lock.isLost(); Thread.sleep(5)) {
            long until = lock.validUntil();
            if (until != last) System.out.println(until);
            last = until;
        }
        System.exit(1);
    }

    private Holder() {}
}
