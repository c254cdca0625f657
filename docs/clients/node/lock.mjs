// Takes and gives back locks of lockproxy with ioredis, over connections that break.
import { randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'

const now = () => performance.now()

// acquire waits for the name for so many milliseconds, then returns null. wait must be less
// than the client's commandTimeout. The lock is ours until `until` (of performance.now),
// unless it is released before; fence grows with every holder.
export async function acquire(redis, name, ttl, patience, wait = 1000) {
  const owner = randomUUID()
  const end = now() + patience
  try {
    for (;;) {
      const asked = now()
      const reply = await call(end, redis, 'LOCK', name, ttl, 'OWNER', owner, 'REQ', owner, 'WAIT', wait)
      if (reply && now() < asked + reply[2]) return { redis, name, owner, fence: reply[0], until: asked + reply[2] }
      if (now() > end) return null
    }
  } catch (e) {
    await redis.call('UNLOCK', name, owner, 'REQ', owner).catch(() => {}) // it may be granted, and the reply lost
    throw e
  }
}

// release fails with LOCKLOST or NOTOWNER when the lock was lost before.
export const release = ({ redis, name, owner, until }) => call(until, redis, 'UNLOCK', name, owner, 'REQ', owner)

// call sends a command until it is answered, since its REQ makes it count once.
async function call(end, redis, ...command) {
  for (;;) {
    try {
      return await redis.call(...command)
    } catch (e) {
      const answer = e.name === 'ReplyError' && !/^(DRAINING|NOQUORUM)/.test(e.message)
      if (answer || now() > end) throw e
    }
    await setTimeout(100)
  }
}
