// Counts under a lock: see ../../doc.go.

import Redis from 'ioredis'
import Redlock4 from 'redlock4'
import Redlock5 from 'redlock5'
import { Mutex, Semaphore } from 'redis-semaphore'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'

const [host, port] = process.env.REDIS.split(':')
const updates = Number(process.env.UPDATES)
const ttl = 1000 * Number(process.env.LEASE ?? 10) // ms
const pause = 500 // between two tries to take a lock, in ms
const patience = { retryCount: 1_000, retryDelay: pause, retryJitter: pause / 2 } // of both versions of redlock
const r = new Redis({ host, port: Number(port), lazyConnect: true })

// Each of these takes a lock and returns what gives it back.
const kinds = {
  redlock4() {
    const redlock = new Redlock4([r], patience)
    return async () => {
      const lock = await redlock.lock('lock:redlock4', ttl)
      return () => lock.unlock()
    }
  },
  redlock5() {
    const redlock = new Redlock5([r], patience)
    return async () => {
      const lock = await redlock.acquire(['lock:redlock5'], ttl)
      return () => lock.release()
    }
  },
  semaphore() {
    return async () => {
      const mutex = new Mutex(r, 'counter', { lockTimeout: ttl, acquireTimeout: 10 * 60_000, retryInterval: pause })
      await mutex.acquire()
      return () => mutex.release()
    }
  },
  permit() {
    return async () => {
      const semaphore = new Semaphore(r, 'counter', 1, { lockTimeout: ttl, acquireTimeout: 10 * 60_000, retryInterval: pause })
      await semaphore.acquire()
      return () => semaphore.release()
    }
  },
  // The same value for everybody, released without a look.
  constant() {
    return async () => {
      while ((await r.set('lock:constant', '1', 'PX', ttl, 'NX')) !== 'OK') await sleep(pause * (0.5 + Math.random()))
      return () => r.del('lock:constant')
    }
  },
  setnx() {
    return async () => {
      while ((await r.setnx('lock:setnx', 'me')) !== 1) await sleep(pause * (0.5 + Math.random()))
      await r.expire('lock:setnx', ttl / 1000)
      return () => r.del('lock:setnx')
    }
  },
}

const acquire = kinds[process.argv[2]]()
const failures = []

async function update() {
  try {
    const release = await acquire()
    try {
      if (process.env.HOLD) {
        console.log('held')
        await once(process.stdin, 'data')
      }
      await r.set('counter', Number(await r.get('counter')) + 1)
    } finally {
      await release()
    }
  } catch (e) {
    failures.push(`${e} ${e.attempts ? (await Promise.all(e.attempts)).map((a) => [...a.votesAgainst.values()]).join() : ''}`)
  }
}

await r.connect()
console.log('ready')
await once(process.stdin, 'data')
await Promise.all(Array.from({ length: updates }, update))
for (const f of failures) console.log('failed:', f)
console.log('done', updates - failures.length)
process.exit()
