// When a lock is renewed and when it is lost, and what is sent: without a server and without a clock.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isLoss, isTransient, Lease, number, pauses, Request } from '../lib/lease.js'

const lease = options => new Lease({ ttl: 30_000, ...options }, 100_000, 29_000)
const gone = new Error('Socket closed unexpectedly')

test('validity counts from when the question was sent', () => {
  const l = lease()
  assert.deepEqual([l.until, l.wakeAt()], [129_000, 110_000])
  assert.equal(l.next(109_999), false)
  assert.equal(l.next(110_000), true)
  l.answered(28_000, 115_000)
  assert.deepEqual([l.until, l.wakeAt()], [138_000, 120_000])
})

test('pauses become longer, and differ', () => {
  const waits = pauses()
  for (const least of [100, 200, 400, 800, 800, 800]) {
    const { value } = waits.next()
    assert.ok(least <= value && value <= 1.25 * least, `${value} ms, not ${least} or a quarter more`)
  }
  assert.ok(new Set(Array.from({ length: 20 }, () => pauses().next().value)).size > 1)
})

test('no second question while one is open', () => {
  const l = lease()
  assert.equal(l.next(110_000), true)
  assert.equal(l.next(125_000), false)
  assert.equal(l.wakeAt(), 129_000)
})

test('errors are tried again until the validity is over', () => {
  for (const error of [gone, new Error('Command timed out'), new Error('NOQUORUM 1 of 3')]) {
    const l = lease()
    assert.equal(l.next(110_000), true)
    l.failed(error, 112_000)
    assert.equal(l.reason, undefined)
    assert.ok(112_100 <= l.wakeAt() && l.wakeAt() <= 112_125, `${l.wakeAt()}`)
    assert.equal(l.next(112_000), false)
    assert.equal(l.next(112_125), true)
    l.failed(error, 128_950)
    assert.equal(l.next(129_000), false)
    assert.equal(l.reason, `its validity ended, it could not be renewed: ${error.message}`)
  }
})

test('in an outage it is renewed less and less often, and more often again towards the end', () => {
  const l = lease()
  let now = 110_000
  for (let least = 100; l.until - now > 300; least = Math.min(2 * least, 800)) {
    assert.equal(l.next(now), true)
    l.failed(new Error('NOQUORUM 1 of 3'), now)
    const half = Math.max(100, (l.until - now) / 2)
    const pause = l.wakeAt() - now
    assert.ok(Math.min(least, half) - 0.001 <= pause && pause <= Math.min(1.25 * least, half) + 0.001, `${pause} ms at ${now}, not ${least}`)
    now = l.wakeAt()
  }
  assert.ok(l.until - now > 100, 'no try comes while it can be saved')
  assert.equal(l.next(now), true)
  l.answered(29_000, now)
  now = l.wakeAt()
  assert.equal(l.next(now), true)
  l.failed(gone, now)
  assert.ok(l.wakeAt() - now < 130, 'a renewal does not begin anew')
})

test('an answer after the end does not bring it back', () => {
  const l = lease()
  assert.equal(l.next(110_000), true)
  l.answered(29_000, 130_000)
  assert.equal(l.until, 129_000)
  assert.equal(l.next(130_000), false)
  assert.equal(l.reason, 'its validity ended')
})

test('lost', () => {
  for (const said of ['LOCKLOST this owner no longer has the lock', 'NOTOWNER another owner holds the lock for 5ms']) {
    for (const session of [false, true]) {
      const l = lease({ session })
      assert.equal(l.next(110_000), true)
      l.failed(new Error(said), 111_000)
      assert.equal(l.reason, said)
    }
  }
})

test('the end of a session\'s connection is the loss', () => {
  const ended = lease({ session: true })
  ended.ended(new Error('closed'))
  assert.equal(ended.reason, 'its connection ended: closed')
  const failed = lease({ session: true })
  assert.equal(failed.next(104_000), true)
  failed.failed(new Error('NOQUORUM 1 of 3'), 105_000)
  assert.equal(failed.reason, undefined)
  assert.equal(failed.next(105_125), true)
  failed.failed(gone, 106_000)
  assert.equal(failed.reason, 'its connection ended: Socket closed unexpectedly')
})

test('a session counts as held for 12 s after an answer, when a proxy may have missed its host', () => {
  const l = lease({ session: true, ttl: 60_000 })
  assert.deepEqual([l.until, l.wakeAt()], [112_000, 104_000])
  assert.equal(l.next(104_000), true)
  l.answered(59_000, 105_000)
  assert.deepEqual([l.until, l.wakeAt()], [116_000, 108_000])
  assert.equal(lease({ session: true, ttl: 3_000 }).wakeAt(), 101_000)
})

test('maxHold', () => {
  const l = lease({ maxHold: 15_000 })
  assert.equal(l.next(110_000), true)
  l.answered(29_000, 110_500)
  assert.equal(l.wakeAt(), 139_000)
  assert.equal(l.next(130_000), false)
  assert.equal(l.next(139_000), false)
  assert.equal(l.reason, 'its validity ended, it was held for maxHold')
})

test('an hour is the longest', () => {
  const l = lease()
  let now = 100_000
  while (l.wakeAt() < l.until) {
    now = l.wakeAt()
    assert.equal(l.next(now), true)
    l.answered(29_000, now + 1_000)
  }
  assert.equal(now, 3_700_000)
})

test('without renewal', () => {
  const l = lease({ renew: false })
  assert.equal(l.wakeAt(), 129_000)
  assert.equal(l.next(128_000), false)
  assert.equal(l.reason, undefined)
  assert.equal(l.next(129_000), false)
  assert.equal(l.reason, 'its validity ended')
})

test('what is sent', () => {
  const r = new Request(['job'], { ttl: 1_500 })
  assert.match(r.owner, /^[0-9a-f]{32}$/)
  assert.deepEqual(r.lock(0), ['LOCK', 'job', '1500', 'OWNER', r.owner, 'REQ', r.owner])
  assert.deepEqual(r.lock(0.1).slice(-2), ['WAIT', '1'])
  assert.deepEqual(r.renew(new Map([['job', 7]])), ['RENEW', 'job', '1500', r.owner, 'FENCE', '7'])
  assert.deepEqual(r.unlock(), ['UNLOCK', 'job', r.owner, 'REQ', r.owner])
  assert.notEqual(new Request(['job'], {}).owner, r.owner, 'an owner is used once')
})

test('a reader says so each time', () => {
  const r = new Request(['job'], { ttl: 1_500, shared: true, info: 'me' })
  assert.deepEqual(r.lock(2_000), ['LOCK', 'job', '1500', 'OWNER', r.owner, 'REQ', r.owner, 'SHARED', 'INFO', 'me', 'WAIT', '2000'])
  assert.deepEqual(r.renew(new Map([['job', 7]])), ['RENEW', 'job', '1500', r.owner, 'SHARED', 'FENCE', '7'])
  assert.deepEqual(r.unlock(), ['UNLOCK', 'job', r.owner, 'SHARED', 'REQ', r.owner])
})

test('a permit is renewed and given back as a reader\'s lock', () => {
  const r = new Request(['job'], { ttl: 1_500, permits: 3, info: 'me' })
  assert.deepEqual(r.lock(2_000), ['LOCK', 'job', '1500', 'OWNER', r.owner, 'REQ', r.owner, 'PERMITS', '3', 'INFO', 'me', 'WAIT', '2000'])
  assert.deepEqual(r.renew(new Map([['job', 7]])), ['RENEW', 'job', '1500', r.owner, 'SHARED', 'FENCE', '7'])
  assert.deepEqual(r.unlock(), ['UNLOCK', 'job', r.owner, 'SHARED', 'REQ', r.owner])
})

test('several names', () => {
  const b = Buffer.from('b')
  const r = new Request(['a', b], { ttl: 1_500, shared: true })
  const reply = [1_400, 'owner', ['a', 7, 1], ['b', '8', 1]]
  assert.deepEqual(r.lock(2_000), ['LOCKALL', '2', 'a', b, '1500', 'OWNER', r.owner, 'REQ', r.owner, 'SHARED', 'WAIT', '2000'])
  const { validity, fences } = r.granted(reply)
  assert.deepEqual([validity, ...fences], [1_400, ['a', 7], [b, 8]])
  assert.deepEqual(r.renew(fences), ['RENEWALL', '2', 'a', b, '1500', r.owner, 'SHARED'])
  assert.deepEqual(r.unlock(), ['UNLOCKALL', '2', 'a', b, r.owner, 'SHARED', 'REQ', r.owner])
  for (const other of ['OK', reply.slice(0, 3), [1_400, 'owner', 'a', 'b']]) assert.throws(() => r.granted(other), /no answer of a lockproxy/)
  assert.deepEqual(new Request([], { ttl: 1_500 }).lock(0).slice(0, 3), ['LOCKALL', '0', '1500'])
})

test('maxHold is the proxy\'s business in a session alone', () => {
  const more = options => new Request(['job'], options).lock(2_000).slice(7)
  assert.deepEqual(more({ maxHold: 60_000, info: 'me' }), ['INFO', 'me', 'WAIT', '2000'])
  assert.deepEqual(more({ session: true }), ['SESSION', 'ONLOSS', 'CLOSE', 'WAIT', '2000'])
  assert.deepEqual(more({ session: true, maxHold: 60_000 }), ['SESSION', 'ONLOSS', 'CLOSE', 'MAXHOLD', '60000', 'WAIT', '2000'])
  assert.deepEqual(more({ session: true, maxHold: Infinity }), ['SESSION', 'ONLOSS', 'CLOSE', 'WAIT', '2000'])
})

test('what an error means', () => {
  const refused = Object.assign(new Error('EXAMPLE of the system'), { code: 'ECONNREFUSED' })
  for (const error of [gone, new Error('Connection is closed.'), new Error(''), refused, new Error('NOQUORUM'), new Error('DRAINING'), new Error('UPSTREAMDOWN gone')]) {
    assert.equal(isTransient(error), true, error.message)
    assert.equal(isLoss(error), false, error.message)
  }
  for (const said of ['ERR unknown command', 'MAXWAIT', 'NOPERM this user', 'WRONGPASS wrong', 'NOAUTH first', 'LOCKLOST gone']) {
    assert.equal(isTransient(new Error(said)), false, said)
    assert.equal(isLoss(new Error(said)), said.startsWith('LOCKLOST'), said)
  }
})

test('numbers', () => {
  for (const reply of [29_000, '29000', 29_000n]) assert.equal(number(reply), 29_000)
  for (const reply of ['OK', null, undefined, [1]]) assert.throws(() => number(reply), /no answer of a lockproxy/)
})
