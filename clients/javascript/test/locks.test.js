// Locks of both clients, at proxies, in RESP2 and RESP3.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { LockLost, Locks } from 'lockproxy'
import { clock, Holder, holdsOn, kinds, Link, Look, LONG, proxies, record, SOON, strict, until } from './world.js'

const HOLD = { ttl: LONG, wait: LONG } // a wait for those who find too few lock nodes, on a busy machine

/** The lock is another's, as soon as enough lock nodes answer to know. */
const refused = (locks, name, options) =>
  until(async () => await locks.acquire(name, options).catch(e => e.message.startsWith('NOQUORUM') || Promise.reject(e)) === null, 'it is not refused')

/** What a test has: locks of a client of that kind, and a name for them. It ends with the test. */
async function world(t, kind) {
  const look = new Look()
  t.after(() => look.close())
  const connect = async settings => {
    const client = await kind.connect(settings)
    t.after(() => kind.close(client))
    return client
  }
  const link = async () => {
    const l = await Link.start()
    t.after(() => l.close())
    return l
  }
  const client = await connect(proxies[0])
  const losses = []
  return {
    look, connect, link, client, losses, locks: new Locks(client), name: `${kind.name} ${t.name}`,
    onLost: loss => losses.push(loss),
    told: () => until(() => losses[0], 'the loss is not told'),
    free: name => until(async () => await look.holder(name) === null, 'it is not free'),
  }
}

const tests = {
  async 'taken and given back'({ locks, look, name }) {
    const first = await locks.using(name, HOLD, async lock => {
      assert.deepEqual([lock.name, lock.lost], [name, false])
      assert.ok(SOON < lock.remaining && lock.remaining <= LONG)
      assert.equal(await look.holder(name), lock.owner)
      lock.check()
      await refused(locks, name)
      return lock.fence
    })
    assert.equal(await look.holder(name), null)
    const again = await locks.acquire(Buffer.from(name), { ...HOLD, info: 'me' })
    assert.ok(again.fence > first)
    await again[Symbol.asyncDispose]()
    await again.release()
    assert.equal(await look.holder(name), null)
  },

  /** They have it at the same time, each renewed, and keep a writer out until the last has gone, who keeps them out. */
  async 'readers'({ locks, name }) {
    const first = await locks.acquire(name, { ...HOLD, ttl: LONG / 10, shared: true })
    const second = await locks.acquire(name, { ...HOLD, shared: true, session: true })
    const { validUntil } = first
    await until(() => first.validUntil > validUntil, 'it is not renewed')
    await refused(locks, name)
    await first.release()
    await refused(locks, name)
    await second.release()
    const written = await locks.using(name, HOLD, async writer => {
      assert.equal(await locks.acquire(name, { shared: true }), null)
      return writer.fence
    })
    assert.ok(written > first.fence && written > second.fence)
    await locks.using(name, { ...HOLD, shared: true }, reader => assert.ok(reader.fence >= written))
  },

  /** As many have it at the same time as there are permits, each renewed; nobody has it for itself meanwhile. */
  async 'permits'({ locks, name }) {
    const first = await locks.acquire(name, { ...HOLD, ttl: LONG / 10, permits: 2 })
    const second = await locks.acquire(name, { ...HOLD, permits: 2, session: true })
    assert.ok(second.fence > first.fence)
    const { validUntil } = first
    await until(() => first.validUntil > validUntil, 'it is not renewed')
    assert.equal(await locks.acquire(name, { permits: 2 }), null)
    await refused(locks, name)
    await first.release()
    await locks.using(name, { ...HOLD, permits: 2 }, third => assert.ok(third.fence > second.fence))
    await second.release()
    await locks.using(name, HOLD, async () => assert.equal(await locks.acquire(name, { permits: 2 }), null))
  },

  /** All or none: who waits for them holds none, and gets them when they are given back together. */
  async 'several names'({ locks, look, name }) {
    const [a, b, c] = ['a', 'b', 'c'].map(end => `${name} ${end}`)
    const first = await locks.acquireAll([b, a], { ...HOLD, ttl: LONG / 10 })
    assert.deepEqual([...first.fences.keys()], [b, a])
    await until(async () => await locks.acquireAll([c, b]).catch(e => e.message.startsWith('NOQUORUM') || Promise.reject(e)) === null, 'it is not refused')
    const waiting = locks.acquireAll([a, b, c], { ...HOLD, session: true })
    await until(async () => await look.waiting(a) + await look.waiting(b) === 1, 'it is not in line')
    const { validUntil } = first
    await until(() => first.validUntil > validUntil, 'it is not renewed')
    assert.deepEqual(await Promise.all([a, b, c].map(n => look.holder(n))), [first.owner, first.owner, null])
    await first.release()
    const second = await waiting
    assert.ok(second.fences.get(a) > first.fences.get(a) && second.fences.get(b) > first.fences.get(b) && second.fences.get(c) > 0)
    await second.release()
    await locks.usingAll([a, b], { ...HOLD, shared: true }, () =>
      locks.usingAll([b, c], { ...HOLD, shared: true }, () => refused(locks, c)))
    assert.deepEqual(await Promise.all([a, b, c].map(n => look.holder(n))), [null, null, null])
  },

  /** The lock is lost, and the others are given back. */
  async 'one of several forced'({ client, locks, look, name, onLost, losses, told, free }) {
    const [a, b] = ['a', 'b'].map(end => `${name} ${end}`)
    const sent = record(client)
    for (const session of [false, true]) {
      losses.length = 0
      let owner
      await assert.rejects(locks.usingAll([a, b], { ...HOLD, ttl: LONG / 2, session, onLost }, async lock => {
        owner = lock.owner
        await look.force(b)
        assert.match((await told()).message, /LOCKLOST .*b: |its connection ended/)
        assert.throws(() => lock.check(), LockLost)
      }), LockLost)
      assert.ok(sent.some(c => c.includes('UNLOCKALL') && c.includes(owner)), 'the others are not given back')
      await free(a)
      assert.equal(losses.length, 1)
    }
  },

  /** One client has three who wait for longer than its timeout, while it goes on with its other work. Asking again and again does not cost a place. */
  async 'served in turn'({ connect, link, locks: others, look, name }, kind) {
    for (let tries = 0; tries < 5; tries++) { // who is kept from asking again for 2 s, on a busy machine, may lose its place
      const l = await link()
      const client = await connect({ ...l.address, timeout: 1_000 })
      const sent = record(client)
      const locks = new Locks(client)
      const order = []
      const turns = await others.using(name, HOLD, async () => {
        const turns = []
        for (const i of [0, 1, 2]) {
          turns.push(locks.using(name, HOLD, () => order.push(i)))
          await until(async () => await look.waiting(name) === i + 1, 'it is not in line')
        }
        const asked = sent.length
        await until(() => sent.length > asked + 6, 'they do not ask again')
        await until(() => kind.ping(client).then(() => true, () => false), 'no other command is answered') // one may time out on a busy machine
        return turns
      })
      await Promise.all(turns)
      const waiting = sent.filter(c => c.includes('WAIT'))
      assert.equal(new Set(waiting.map(c => c[c.indexOf('REQ') + 1])).size, 3, 'one asked as another')
      await until(() => l.open.size === 1, 'connections on which they waited are left')
      if (String(order) === '0,1,2') return
    }
    assert.fail('not served in turn')
  },

  async 'aborted while it waits'({ locks, look, name }) {
    for (const session of [false, true]) {
      await locks.using(name, HOLD, async () => {
        const abort = new AbortController()
        const acquiring = locks.acquire(name, { wait: LONG, session, signal: abort.signal })
        await until(() => look.waiting(name), 'it is not in line')
        abort.abort()
        await assert.rejects(acquiring, { name: 'AbortError' })
        await until(async () => await look.waiting(name) === 0, 'it is still in line')
      })
      assert.equal(await look.holder(name), null)
    }
  },

  async 'killed in a session'({ locks, look, name }, kind) {
    const holder = await Holder.start(kind.name, name, JSON.stringify({ ...HOLD, session: true }))
    const acquiring = locks.acquire(name, HOLD)
    await until(() => look.waiting(name), 'it is not in line')
    const killed = performance.now()
    await holder.kill()
    const lock = await acquiring
    assert.ok(performance.now() < killed + SOON)
    assert.ok(lock.fence > holder.fence)
    await lock.release()
  },

  async 'killed while it renews'({ locks, name }, kind) {
    const [holder, said] = await holdsOn(kind.name, name, JSON.stringify({ ttl: 1_000, wait: LONG }))
    const validUntil = await holder.kill() ?? said
    const lock = await locks.acquire(name, HOLD)
    assert.ok(clock() >= validUntil)
    assert.ok(lock.fence > holder.fence)
    await lock.release()
  },

  async 'told of a loss'({ locks, look, name, losses, onLost }) {
    for (const options of [{ ttl: 3_000 }, { session: true }]) {
      losses.length = 0
      await assert.rejects(locks.using(name, { ...HOLD, ...options, onLost }, async lock => {
        await look.force(name)
        await until(() => lock.signal.aborted, 'the loss is not told')
        assert.match(losses[0].message, /LOCKLOST|its connection ended/)
        assert.equal(lock.signal.reason, losses[0])
        assert.deepEqual([lock.lost, lock.remaining], [true, 0])
        assert.throws(() => lock.check(), LockLost)
      }), LockLost)
      assert.equal(losses.length, 1)
    }
  },

  async 'forced and released at once'({ locks, look, name }) {
    for (const session of [false, true]) {
      const lock = await locks.acquire(name, { ...HOLD, session })
      await look.force(name)
      await assert.rejects(lock.release(), LockLost)
      await lock.release()
    }
  },

  async 'what the body throws comes first'({ locks, look, name }) {
    const failed = new Error('failed')
    await assert.rejects(locks.using(name, HOLD, () => { throw failed }), failed)
    assert.equal(await look.holder(name), null)
    await assert.rejects(locks.using(name, HOLD, async () => {
      await look.force(name)
      throw failed
    }), failed)
  },

  async 'the end of a session\'s connection'({ connect, link, locks, look, name, losses, onLost, told }) {
    const l = await link()
    const held = await new Locks(await connect(l.address)).acquire(name, { ...HOLD, session: true, onLost })
    assert.equal(held.lost, false)
    l.hangUp()
    assert.match((await told()).message, /its connection ended/)
    const other = await locks.acquire(name, { ttl: LONG, wait: SOON })
    await assert.rejects(held.release(), LockLost)
    assert.equal(losses.length, 1)
    assert.equal(await look.holder(name), other.owner)
    await other.release()
  },

  async 'no answer until the validity is over'({ connect, link, name, losses, onLost, told }) {
    for (const session of [false, true]) {
      losses.length = 0
      const l = await link()
      const lock = await new Locks(await connect(l.address)).acquire(name + session, { ttl: 1_000, session, wait: LONG, onLost })
      l.silent = true
      assert.match((await told()).message, /its validity ended/)
      assert.ok(performance.now() >= lock.validUntil)
      await assert.rejects(lock.release(), LockLost)
      assert.equal(losses.length, 1)
    }
  },

  async 'not renewed'({ client, locks, name, onLost, told, free }) {
    const sent = record(client)
    const lock = await locks.acquire(name, { ttl: 500, renew: false, wait: LONG, onLost })
    assert.match((await told()).message, /its validity ended$/)
    await assert.rejects(lock.release(), LockLost)
    await free(name)
    assert.deepEqual(sent.filter(c => c[0] === 'RENEW'), [])
  },

  async 'a session ends after maxHold'({ locks, name, onLost, told }) {
    const lock = await locks.acquire(name, { ...HOLD, maxHold: 500, session: true, onLost })
    assert.match((await told()).message, /its connection ended|it was held for maxHold/) // whoever is first, the proxy or we
    await assert.rejects(lock.release(), LockLost)
  },

  async 'a session has a connection while it lasts'({ connect, link, name }) {
    const l = await link()
    const locks = new Locks(await connect(l.address))
    await locks.using(name, { ...HOLD, session: true }, () => assert.equal(l.open.size, 2))
    await until(() => l.open.size === 1, 'its connection is left')
  },

  async 'through another proxy'({ connect, link, locks, look, name }) {
    const l = await link()
    await new Locks(await connect(l.address)).using(name, HOLD, async () => {
      l.to = proxies[1]
      l.hangUp()
    })
    assert.equal(await look.holder(name), null)
  },

  async 'a lock outlives the connection that took it'({ connect, link, locks, name }) {
    const l = await link()
    await new Locks(await connect(l.address)).using(name, { ttl: 3_000, wait: LONG }, async lock => {
      for (let i = 0; i < 2; i++) {
        const before = lock.validUntil
        l.hangUp()
        await until(() => lock.validUntil > before, 'it is not renewed')
      }
      await refused(locks, name)
    })
  },

  async 'own connections have the settings of the client'({ connect, name }) {
    const locks = new Locks(await connect(strict()))
    await locks.using(`app:${name}`, { ...HOLD, session: true }, async () => {
      for (const options of [{ session: true }, { wait: 300 }]) await refused(locks, `app:${name}`, options)
    })
    for (const session of [false, true]) await assert.rejects(locks.acquire(name, { ...HOLD, session }), /NOPERM/)
  },

  async 'a client that is closed'({ connect, name }, kind) {
    const client = await connect(proxies[0])
    await kind.ping(client)
    kind.close(client)
    await assert.rejects(new Locks(client).acquire(name, { wait: LONG }), /closed/)
  },
}

describe('locks', { concurrency: true, skip: proxies.length < 2 && 'PROXIES names no two proxies' }, () => {
  for (const kind of kinds) {
    describe(kind.name, { concurrency: 1 }, () => {
      for (const [name, run] of Object.entries(tests)) test(name, async t => run(await world(t, kind), kind))
    })
  }
})
