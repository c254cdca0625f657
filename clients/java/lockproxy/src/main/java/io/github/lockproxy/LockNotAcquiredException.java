package io.github.lockproxy;

/** Somebody else has the lock, and still had it when the wait was over. */
public class LockNotAcquiredException extends LockException {
    private static final long serialVersionUID = 1;

    LockNotAcquiredException(String name) {
        super("somebody else has the lock \"" + name + "\"", null);
    }
}
