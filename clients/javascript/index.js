export { LockLost, LockNotAcquired } from './lib/lease.js'
export { Locks } from './lib/locks.js'
