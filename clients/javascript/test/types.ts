// What TypeScript must accept, and what it must not. It is compiled, and not run.
import { Cluster, Redis } from 'ioredis'
import { createClient, createClientPool, createCluster, createSentinel } from 'redis'
import { LockLost, Locks, type Lock, type LockOptions } from 'lockproxy'

const locks = new Locks(new Redis())
new Locks(createClient())
new Locks(createClient({ RESP: 2, socket: { tls: true, host: 'locks' } }))
// @ts-expect-error
new Locks(new Cluster(['locks']))
// @ts-expect-error
new Locks(createCluster({ rootNodes: [] }))
// @ts-expect-error
new Locks(createClientPool())
// @ts-expect-error
new Locks(createSentinel({ name: 'locks', sentinelRootNodes: [] }))
// @ts-expect-error
new Locks('redis://locks')

const options: LockOptions = { ttl: 1_000, wait: 2_000, renew: true, maxHold: 3_000, session: false, shared: true, permits: 3, info: 'me', signal: AbortSignal.timeout(1), onLost: loss => console.log(loss.message) }
// @ts-expect-error
await locks.acquire('job', { ttl: '30s' })

async function take(): Promise<number> {
  await using lock = await locks.acquire('job', options)
  // @ts-expect-error
  lock.fence
  return lock ? lock.fence : 0
}

const n: number = await locks.using('job', options, async lock => lock.fence + await take())
const s: string = await locks.using(Buffer.from('job'), lock => lock.owner)
// @ts-expect-error
await locks.using('job', options)

const several: number | undefined = await locks.usingAll(['a', Buffer.from('b')], { wait: 1 }, lock => lock.fences.get('a'))
await locks.acquireAll(new Set(['a', 'b']))
// @ts-expect-error
await locks.acquireAll(['a', 'b'], { permits: 3 })

function held(lock: Lock): boolean {
  lock.check()
  lock.signal.addEventListener('abort', () => console.log(lock.signal.reason instanceof LockLost))
  // @ts-expect-error
  lock.fence = 1
  return !lock.lost && lock.remaining > 0 && lock.validUntil > performance.now() && String(lock.name) === 'job'
}

console.log(n, s, several, held)
