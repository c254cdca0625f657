package io.github.lockproxy;

import java.util.List;

/** Somebody else has the lock, and still had it when the wait was over. */
public class LockNotAcquiredException extends LockException {
    private static final long serialVersionUID = 1;

    LockNotAcquiredException(List<String> names) {
        super("somebody else has the lock " + Request.quoted(names), null);
    }
}
