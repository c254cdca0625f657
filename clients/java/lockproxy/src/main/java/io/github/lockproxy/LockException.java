package io.github.lockproxy;

/** A lock could not be taken or given back. Its cause, if any, is the exception of the client library. */
public class LockException extends RuntimeException {
    private static final long serialVersionUID = 1;

    LockException(String message, Throwable cause) {
        super(message, cause);
    }
}
