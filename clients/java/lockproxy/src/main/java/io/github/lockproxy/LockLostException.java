package io.github.lockproxy;

import java.util.List;

/** The lock was lost before it was released: somebody else may have it. */
public class LockLostException extends LockException {
    private static final long serialVersionUID = 1;

    LockLostException(List<String> names, String reason) {
        super("the lock " + Request.quoted(names) + " is lost: " + reason, null);
    }
}
