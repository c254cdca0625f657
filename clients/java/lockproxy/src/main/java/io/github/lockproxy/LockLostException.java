package io.github.lockproxy;

/** The lock was lost before it was released: somebody else may have it. */
public class LockLostException extends LockException {
    private static final long serialVersionUID = 1;

    LockLostException(String name, String reason) {
        super("the lock \"" + name + "\" is lost: " + reason, null);
    }
}
