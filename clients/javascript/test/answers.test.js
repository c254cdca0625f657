// What is sent, and over which connection, when a client answers as a test says.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Cluster, Redis } from 'ioredis'
import { createClientPool, createCluster, createSentinel } from 'redis'
import { LockLost, LockNotAcquired, Locks } from 'lockproxy'
import { LONG, record, until } from './world.js'

const GRANT = [7, 'me', 29_000, 1]
const gone = new Error('Connection is closed.')
const said = text => new Error(text)
const never = new Promise(() => {})

/** Looks like a Redis of ioredis. Each command is answered by the next of the answers: a reply, an error or a promise; what is behind them by 1. */
class Scripted {
  status = 'ready'
  options = {}
  sent = []
  made = []

  constructor(...answers) {
    this.answers = answers
  }

  async call(...command) {
    this.sent.push(command)
    const answer = await (this.answers.length ? this.answers.shift() : 1)
    if (answer instanceof Error) throw answer
    return answer
  }

  duplicate() {
    const own = new Scripted()
    own.listeners = {}
    own.on = (event, listener) => { own.listeners[event] = listener }
    own.call = async (...command) => this.call('own', ...command)
    own.disconnect = () => {
      own.status = 'end'
      own.listeners.end()
    }
    this.made.push(own)
    return own
  }

  /** The verbs that were sent, with "own" in front of one that was over a connection of its own. */
  verbs() {
    return this.sent.map(([first, second]) => first === 'own' ? `own ${second}` : first)
  }

  async becomes(...verbs) {
    await until(() => this.sent.length >= verbs.length, `sent ${this.verbs()}`)
    assert.deepEqual(this.verbs(), verbs)
  }
}

test('what is no client of one server', () => {
  const nodes = { rootNodes: [{ url: 'redis://127.0.0.1:1' }] }
  const cluster = new Cluster([{ host: '127.0.0.1', port: 1 }], { lazyConnect: true })
  for (const client of [cluster, createCluster(nodes), createSentinel({ name: 'locks', sentinelRootNodes: [] }), createClientPool(), 'redis://locks', undefined]) {
    assert.throws(() => new Locks(client), TypeError)
  }
  cluster.disconnect()
})

test('tried again as it was', async () => {
  const client = new Scripted(gone, said('Command timed out'), said('NOQUORUM 1 of 3'), said('DRAINING'), said('UPSTREAMDOWN'), GRANT)
  const lock = await new Locks(client).acquire('job', { wait: LONG })
  assert.deepEqual(client.verbs(), ['LOCK', ...Array(5).fill('own LOCK')])
  for (const c of client.sent) assert.deepEqual(c.slice(c.indexOf('LOCK')).slice(0, 7), ['LOCK', 'job', '30000', 'OWNER', lock.owner, 'REQ', lock.owner])
  client.answers = [gone, said('NOQUORUM'), 1]
  await lock.release()
  assert.deepEqual(client.sent.slice(6), Array(3).fill(['UNLOCK', 'job', lock.owner, 'REQ', lock.owner]))
  assert.equal(client.made.filter(c => c.status === 'end').length, 4, 'a connection with an error is used no more')
})

test('UNLOCK in an outage is sent less and less often, and the last time when the lease is over', async () => {
  const client = new Scripted([7, 'me', 3000, 1], ...Array(100).fill(said('NOQUORUM 0 of 3')))
  const lock = await new Locks(client).acquire('job', { ttl: 3000 })
  await assert.rejects(lock.release(), said('NOQUORUM 0 of 3'))
  assert.ok(performance.now() >= lock.validUntil)
  assert.ok(client.verbs().length <= 1 + 8, `sent ${client.verbs()}`) // after 0, 0.1, 0.3, 0.7, 1.5, 2.3 and 3 s, or a ms before that and then
})

test('LOCK in an outage is sent less and less often, and the last time when the wait is over', async () => {
  const client = new Scripted(...Array(100).fill(said('NOQUORUM 0 of 3')))
  const began = performance.now()
  await assert.rejects(new Locks(client).acquire('job', { wait: 3000 }), said('NOQUORUM 0 of 3'))
  const locks = client.verbs().filter(verb => verb.endsWith('LOCK') && verb !== 'UNLOCK')
  assert.ok(locks.length <= 8, `sent ${client.verbs()}`) // after 0, 0.1, 0.3, 0.7, 1.5, 2.3 and 3 s, or a ms before that and then
  assert.ok(performance.now() - began >= 3000)
})

test('what cannot succeed is not tried again', async () => {
  for (const text of ['NOPERM no', 'MAXWAIT too long', 'WRONGPASS wrong']) {
    const client = new Scripted(said(text))
    await assert.rejects(new Locks(client).acquire('job', { wait: LONG }), said(text))
    assert.deepEqual(client.verbs(), ['LOCK'])
  }
})

test('a client that is closed is not asked again', async () => {
  const client = new Scripted(gone, gone)
  client.status = 'end'
  await assert.rejects(new Locks(client).acquire('job', { wait: LONG }), gone)
  await client.becomes('LOCK', 'UNLOCK')
})

test('a client of ioredis that is closed while it waits to connect again', async () => {
  const client = new Redis({ port: 1, retryStrategy: () => LONG, commandTimeout: 10 })
  client.on('error', () => {})
  const sent = record(client)
  await until(() => client.status === 'reconnecting', client.status)
  client.disconnect()
  await assert.rejects(new Locks(client).acquire('job', { wait: LONG }), /timed out/)
  assert.deepEqual(sent.map(([verb]) => verb), ['LOCK', 'UNLOCK'])
})

test('asked once', async () => {
  const client = new Scripted(null)
  assert.equal(await new Locks(client).acquire('job'), null)
  assert.deepEqual(client.verbs(), ['LOCK'])
  client.answers = [null]
  await assert.rejects(new Locks(client).using('job', () => assert.fail('two have the lock')), LockNotAcquired)
})

test('several names', async () => {
  const client = new Scripted([29_000, 'me', ['a', 7, 1], ['b', 8, 1]])
  const locks = new Locks(client)
  const lock = await locks.acquireAll(new Set(['a', 'b']))
  assert.deepEqual([lock.names, [...lock.fences]], [['a', 'b'], [['a', 7], ['b', 8]]])
  assert.throws(() => lock.name, TypeError)
  assert.throws(() => lock.fence, TypeError)
  client.answers = [said('LOCKLOST b: gone. The other name was given back')]
  await assert.rejects(lock.release(), e => e instanceof LockLost && /"a", "b" is lost: LOCKLOST b/.test(e.message))
  assert.deepEqual(client.sent[1], ['UNLOCKALL', '2', 'a', 'b', lock.owner, 'REQ', lock.owner])
  client.answers = [null]
  await assert.rejects(locks.usingAll(['a', 'b'], () => assert.fail('two have one of them')), LockNotAcquired)
  client.answers = [GRANT]
  assert.equal(await locks.usingAll(['job'], one => one.fence), 7)
  assert.deepEqual(client.verbs().slice(3), ['LOCK', 'UNLOCK'])
  for (const one of ['ab', Buffer.from('ab')]) {
    await assert.rejects(locks.acquireAll(one), TypeError)
    await assert.rejects(locks.usingAll(one, () => {}), TypeError)
  }
})

test('some of several were lost before the answer came', async () => {
  const client = new Scripted(said('LOCKLOST this request was granted before'))
  await assert.rejects(new Locks(client).acquireAll(['a', 'b'], { wait: LONG }), /LOCKLOST/)
  await client.becomes('LOCKALL', 'UNLOCKALL')
})

test('it may have been granted', async () => {
  const client = new Scripted(gone, gone)
  await assert.rejects(new Locks(client).acquire('job'), gone)
  await client.becomes('LOCK', 'UNLOCK', 'UNLOCK')
  assert.deepEqual(client.sent[1].slice(2), [client.sent[0][4], 'REQ', client.sent[0][6]])
})

test('refused in the end, but it may have been granted before', async () => {
  const client = new Scripted(gone, sleep(400, null))
  const lock = await new Locks(client).acquire('job', { wait: 300 }).catch(e => assert.equal(e, gone)) // on a busy machine that was the only try
  assert.ok(!lock)
  await until(() => client.verbs().includes('UNLOCK'), 'it is not given back')
})

test('over when it arrives', async () => {
  const client = new Scripted([7, 'me', 0, 0], 1, GRANT)
  const lock = await new Locks(client).acquire('job', { wait: LONG })
  await client.becomes('LOCK', 'UNLOCK', 'own LOCK')
  const [first, givenBack, second] = client.sent
  assert.equal(givenBack[2], first[4])
  assert.notEqual(second[5], first[4])
  assert.equal(lock.owner, second[5])
  await lock.release()
  client.answers = [sleep(300, [7, 'me', 200, 1])]
  await assert.rejects(new Locks(client).acquire('job'), /over when the answer came/)
})

test('a session is over its own connection', async () => {
  const client = new Scripted(null, GRANT, gone)
  const losses = []
  const lock = await new Locks(client).acquire('job', { session: true, wait: LONG, onLost: loss => losses.push(loss) })
  await lock.release()
  await sleep(1)
  assert.deepEqual([losses, lock.signal.aborted], [[], false], 'its end after a release is no loss')
  assert.deepEqual(client.verbs(), ['own LOCK', 'own LOCK', 'own UNLOCK', 'UNLOCK'])
  assert.deepEqual(client.made.map(c => c.status), ['end'])
  client.answers = [null]
  assert.equal(await new Locks(client).acquire('job', { session: true }), null)
  assert.deepEqual(client.made.map(c => c.status), ['end', 'end'])
})

test('the loss of a session', async () => {
  for (const lose of [client => client.made[0].disconnect(), client => { client.answers = [said('LOCKLOST gone')] }]) {
    const client = new Scripted(GRANT)
    const losses = []
    const lock = await new Locks(client).acquire('job', { ttl: 6_000, session: true, onLost: loss => losses.push(loss) })
    lose(client)
    await until(() => losses.length, 'the loss is not told')
    assert.equal(client.made[0].status, 'end')
    assert.equal(client.verbs().includes('own RENEW'), losses[0].message.includes('LOCKLOST'), 'a connection that ends is noticed by itself')
    await assert.rejects(lock.release(), LockLost)
    assert.equal(losses.length, 1)
  }
})

test('a wait is cut into pieces of half the client\'s timeout', async () => {
  for (const [timeout, piece] of [[undefined, '5000'], [400, '200'], [60_000, '5000']]) {
    const client = new Scripted(null, null, GRANT)
    client.options.commandTimeout = timeout
    const lock = await new Locks(client).acquire('job', { wait: LONG })
    assert.deepEqual(client.verbs(), ['LOCK', 'own LOCK', 'own LOCK'])
    assert.equal(new Set(client.sent.map(c => c.at(c.indexOf('OWNER') + 1))).size, 1, 'it asked as another')
    for (const c of client.sent.slice(1)) assert.deepEqual(c.slice(-2), ['WAIT', piece])
    assert.equal(client.made.length, 1)
    await lock.release()
  }
})

test('aborted', async () => {
  for (const session of [false, true]) {
    const client = new Scripted(...session ? [never] : [null, never])
    const abort = new AbortController(), why = said('STOP it')
    const acquiring = new Locks(client).acquire('job', { wait: LONG, session, signal: abort.signal })
    await until(() => client.made.length === 1, 'it does not wait')
    abort.abort(why)
    await assert.rejects(acquiring, why)
    await until(() => client.verbs().at(-1) === 'UNLOCK', 'it is not given back')
    assert.equal(client.made[0].status, 'end')
    await assert.rejects(new Locks(client).acquire('job', { signal: abort.signal }), why)
    assert.equal(client.verbs().filter(v => v === 'LOCK').length, session ? 0 : 1, 'it was asked though it was aborted before')
  }
})

test('a silent connection is given up', async () => {
  const client = new Scripted(never, never, GRANT)
  client.options.commandTimeout = 10
  const lock = await new Locks(client).acquire('job', { wait: LONG })
  assert.deepEqual(client.verbs(), ['LOCK', 'own LOCK', 'own LOCK'])
  assert.deepEqual(client.made.map(c => c.status), ['end', 'ready'])
  await lock.release()
})

test('connections that are not used are closed', async () => {
  const client = new Scripted()
  const locks = new Locks(client)
  for (let i = 0; i < 3; i++) {
    client.answers = [null, GRANT]
    await (await locks.acquire('job', { wait: LONG })).release()
  }
  assert.equal(client.made.length, 1)
  client.made[0].disconnect() // by the other side
  client.answers = [null, GRANT]
  await (await locks.acquire('job', { wait: LONG })).release()
  assert.equal(client.made.length, 2)
  client.answers = [...Array(20).fill(null), ...Array(20).fill(GRANT)]
  await Promise.all(Array.from({ length: 20 }, async () => (await locks.acquire('job', { wait: LONG })).release()))
  const open = () => client.made.filter(c => c.status !== 'end').length
  assert.ok(open() <= 8, `${open()} are kept`)
  await until(() => open() === 0, 'they are kept')
})

test('lost when it is given back', async () => {
  for (const text of ['LOCKLOST gone', 'NOTOWNER another']) {
    const lost = e => e instanceof LockLost && e.message.includes(text)
    await assert.rejects(new Locks(new Scripted(GRANT, said(text))).using('job', () => {}), lost)
    await assert.rejects(new Locks(new Scripted(GRANT, said(text))).using('job', () => { throw gone }), gone)
    const lock = await new Locks(new Scripted(GRANT, said(text))).acquire('job')
    await assert.rejects(lock[Symbol.asyncDispose](), lost)
    await lock.release()
  }
})

test('given back until the lease is over', async () => {
  const client = new Scripted([7, 'me', 300, 1], ...Array(100).fill(gone))
  const lock = await new Locks(client).acquire('job', { renew: false })
  await assert.rejects(lock.release(), gone)
  assert.ok(performance.now() >= lock.validUntil)
})

test('an answer that is no time does not keep a lock', async () => {
  const client = new Scripted(GRANT, 'OK', null, 'QUEUED')
  const lock = await new Locks(client).acquire('job', { ttl: 300 })
  const { validUntil } = lock
  await client.becomes('LOCK', 'RENEW', 'RENEW', 'RENEW')
  assert.equal(lock.validUntil, validUntil)
  await lock.release()
})

test('told of a loss while it is given back', async () => {
  let answer
  const client = new Scripted([7, 'me', 400, 1], new Promise(resolve => { answer = resolve }))
  const lock = await new Locks(client).acquire('job', { renew: false, onLost: () => assert.fail('told of a loss') })
  const released = lock.release()
  await sleep(500)
  answer(1)
  await released
  assert.equal(lock.signal.aborted, false)
})

test('a lock that was released is not lost, and not safe to work with', async () => {
  const lock = await new Locks(new Scripted(GRANT)).acquire('job', { ttl: LONG })
  lock.check()
  await lock.release()
  assert.deepEqual([lock.remaining, lock.lost], [0, false])
  assert.throws(() => lock.check(), e => e instanceof LockLost && /it was released/.test(e.message))
})
