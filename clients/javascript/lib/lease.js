// What is sent, what an answer means, and when a lock is over.

import { randomBytes } from 'node:crypto'

const PAUSE = 100 // ms between two tries
const MAX_PAUSE = 800 // ms, and up to a quarter more, after some failures
const MAX_HOLD = 3_600_000 // ms, as lockproxy's own
const ENDED = 'its validity ended'
export const RELEASED = 'it was released'

// For how many ms a lock with session counts as held after an answer: less than a proxy takes to notice that a
// client's host has vanished, after which it gives the lock away.
const SILENCE = 12_000

/**
 * For how many ms to wait before a command that failed is sent again, each time longer, up to a second: in an outage there may be many of
 * these, and each keeps the lock nodes busy. Clients that failed together do not come back together.
 *
 * @returns {Generator<number, never>}
 */
export function* pauses() {
  for (let pause = PAUSE; ; pause = Math.min(2 * pause, MAX_PAUSE)) yield pause * (1 + Math.random() / 4)
}

/** @param {(string | Buffer)[]} names */
const quoted = names => names.map(name => JSON.stringify(String(name))).join(', ')

export class LockNotAcquired extends Error {
  /** @param {(string | Buffer)[]} names */
  constructor(names) {
    super(`another has the lock ${quoted(names)}`)
    this.name = 'LockNotAcquired'
  }
}

export class LockLost extends Error {
  /**
   * @param {(string | Buffer)[]} names
   * @param {string} reason
   */
  constructor(names, reason) {
    super(`the lock ${quoted(names)} is lost: ${reason}`)
    this.name = 'LockLost'
  }
}

/**
 * The first word of an error that the proxy answered, undefined for every other. A word in capitals is the one mark of those that
 * both clients leave, also where a bundler gives their classes other names.
 *
 * @param {any} error
 */
const word = error => error?.code === undefined ? /^[A-Z][A-Z0-9]+(?= |$)/.exec(error?.message)?.[0] : undefined

/**
 * Whether the same command may be answered when it is sent again.
 *
 * @param {unknown} error
 */
export function isTransient(error) {
  const said = word(error)
  return said === undefined || ['NOQUORUM', 'DRAINING', 'UPSTREAMDOWN'].includes(said)
}

/** @param {unknown} error */
export const isLoss = error => ['LOCKLOST', 'NOTOWNER'].includes(word(error) ?? '')

/**
 * A number of a reply, which some settings of the clients make a string.
 *
 * @param {any} reply
 */
export function number(reply) {
  const n = typeof reply === 'object' ? NaN : Number(reply)
  if (Number.isNaN(n)) throw new Error(`no answer of a lockproxy: ${reply}`)
  return n
}

/**
 * Time for the wire: one of 0 would mean something else.
 *
 * @param {number} ms
 */
const time = ms => String(Math.ceil(ms))

/**
 * One acquisition, of one name or several. Its owner is new, and the id of its LOCK and UNLOCK as well, so that either counts once, however often it is sent.
 */
export class Request {
  /**
   * @param {(string | Buffer)[]} names
   * @param {import('../index.js').LockOptions} options
   */
  constructor(names, { ttl = 30_000, session = false, maxHold, info, shared = false, permits }) {
    this.names = names
    this.ttl = ttl
    this.owner = randomBytes(16).toString('hex')
    this.shared = shared || permits !== undefined ? ['SHARED'] : [] // of RENEW and UNLOCK
    this.lockArgs = [...this.#words('LOCK'), time(ttl), 'OWNER', this.owner, 'REQ', this.owner]
    if (shared) this.lockArgs.push('SHARED')
    if (permits !== undefined) this.lockArgs.push('PERMITS', String(permits))
    if (info) this.lockArgs.push('INFO', info)
    if (session) this.lockArgs.push('SESSION', 'ONLOSS', 'CLOSE')
    if (session && maxHold !== undefined && maxHold !== Infinity) this.lockArgs.push('MAXHOLD', time(maxHold))
  }

  /**
   * @param {string} verb
   * @returns {(string | Buffer)[]}
   */
  #words(verb) {
    const n = this.names.length
    return n === 1 ? [verb, ...this.names] : [`${verb}ALL`, String(n), ...this.names]
  }

  /**
   * The validity in the reply to LOCK, and the fence of each name.
   *
   * @param {any} reply
   */
  granted(reply) {
    const one = this.names.length === 1
    return {
      validity: number(reply[one ? 2 : 0]),
      fences: new Map(this.names.map((name, i) => [name, number(one ? reply[0] : reply[2 + i]?.[1])])),
    }
  }

  /** @param {number} wait */
  lock(wait) {
    return wait > 0 ? [...this.lockArgs, 'WAIT', time(wait)] : this.lockArgs
  }

  /** @param {Map<string | Buffer, number>} fences */
  renew(fences) {
    const fence = fences.size === 1 ? ['FENCE', ...[...fences.values()].map(String)] : [] // of several each has its own
    return [...this.#words('RENEW'), time(this.ttl), this.owner, ...this.shared, ...fence]
  }

  unlock() {
    return [...this.#words('UNLOCK'), this.owner, ...this.shared, 'REQ', this.owner]
  }
}

/**
 * When a lock is to be renewed, and when it is lost. It has neither a clock nor a connection: times are those of performance.now(), and whoever
 * keeps the lock calls next() at wakeAt() and answered() or failed() with what becomes of each RENEW.
 */
export class Lease {
  /** Why the lock is lost, undefined while it is not. @type {string | undefined} */
  reason
  /** @type {number | undefined} */
  #asked
  #ttl
  #session
  #renews
  #renewsUntil
  #renewAt = Infinity
  #why = ENDED
  #pauses = pauses()

  /**
   * @param {import('../index.js').LockOptions} options
   * @param {number} asked when LOCK was sent
   * @param {number} validity what it answered
   */
  constructor({ ttl = 30_000, renew = true, maxHold = MAX_HOLD, session = false }, asked, validity) {
    this.#ttl = ttl
    this.#session = session
    this.#renews = renew || session
    this.#renewsUntil = asked + maxHold
    this.until = asked
    this.#extend(asked, validity)
  }

  /**
   * @param {number} asked
   * @param {number} validity
   */
  #extend(asked, validity) {
    const longest = this.#session ? SILENCE : Infinity
    this.until = asked + Math.min(validity, longest)
    this.#renewAt = this.#renews ? asked + Math.min(this.#ttl, longest) / 3 : Infinity
    this.#why = ENDED
    this.#pauses = pauses()
    if (!this.#renews) return
    if (this.#renewAt > this.#renewsUntil) {
      this.#renewAt = Infinity
      this.#why = `${ENDED}, it was held for maxHold`
    }
  }

  wakeAt() {
    return this.#asked === undefined ? Math.min(this.until, this.#renewAt) : this.until
  }

  /**
   * Whether RENEW is to be sent now. The lock may be lost afterwards.
   *
   * @param {number} now
   */
  next(now) {
    if (now >= this.until) {
      this.reason ??= this.#why
    } else if (this.#asked === undefined && now >= this.#renewAt) {
      this.#asked = now
      return true
    }
    return false
  }

  /**
   * @param {number} validity
   * @param {number} now
   */
  answered(validity, now) {
    const asked = this.#asked
    this.#asked = undefined
    if (asked !== undefined && now < this.until) this.#extend(asked, validity)
  }

  /**
   * RENEW was not answered by a validity.
   *
   * @param {unknown} error
   * @param {number} now
   */
  failed(error, now) {
    this.#asked = undefined
    const said = error instanceof Error ? error.message : String(error)
    if (isLoss(error)) {
      this.reason ??= said
    } else if (this.#session && word(error) === undefined) {
      this.ended(error)
    } else {
      const pause = this.#pauses.next().value
      this.#renewAt = now + Math.min(pause, Math.max(PAUSE, (this.until - now) / 2)) // while the lease can be saved
      this.#why = `${ENDED}, it could not be renewed: ${said}`
    }
  }

  /** It is given back: it is not safe to work any more. */
  released() {
    this.reason ??= RELEASED
  }

  /**
   * The connection of a session has ended.
   *
   * @param {any} error
   */
  ended(error) {
    this.reason ??= `its connection ended: ${error?.message}`
  }
}
