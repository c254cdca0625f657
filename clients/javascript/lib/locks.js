import { setTimeout as sleep } from 'node:timers/promises'
import { adapt } from './clients.js'
import { isLoss, isTransient, Lease, LockLost, LockNotAcquired, number, pauses, RELEASED, Request } from './lease.js'

/** @import * as API from '../index.js' */

/**
 * @typedef {API.LockOptions} LockOptions
 * @typedef {import('./clients.js').Client} Client
 * @typedef {import('./clients.js').Connection} Connection
 */

const MAX_PIECE = 5_000 // ms of a wait, in one LOCK
const ANSWER = 10_000 // ms for an answer, if the client has no timeout
const MIN_ANSWER = 1_000 // ms for one on a connection of its own, which may have to be made first
const MAX_IDLE = 8
const IDLE = 1_000 // ms
const MAX_DELAY = 2 ** 31 - 1 // of a timer

const now = () => performance.now()

/** @implements {API.Locks} */
export class Locks {
  #client
  #idle = new Idle()

  /** @param {API.Ioredis | API.NodeRedis} client */
  constructor(client) {
    this.#client = adapt(client)
  }

  /**
   * @param {string | Buffer} name
   * @param {LockOptions} [options]
   */
  acquire(name, options = {}) {
    return new Attempt(this.#client, this.#idle, [name], options).run()
  }

  /**
   * @param {Iterable<string | Buffer>} names
   * @param {LockOptions} [options]
   */
  async acquireAll(names, options = {}) {
    return new Attempt(this.#client, this.#idle, several(names), options).run()
  }

  /**
   * @template T
   * @param {string | Buffer} name
   * @param {any} options
   * @param {(lock: Lock) => T | PromiseLike<T>} [body]
   * @returns {Promise<T>}
   */
  using(name, options, body) {
    return this.#using([name], options, body)
  }

  /**
   * @template T
   * @param {Iterable<string | Buffer>} names
   * @param {any} options
   * @param {(lock: Lock) => T | PromiseLike<T>} [body]
   * @returns {Promise<T>}
   */
  async usingAll(names, options, body) {
    return this.#using(several(names), options, body)
  }

  /**
   * @template T
   * @param {(string | Buffer)[]} names
   * @param {any} options
   * @param {(lock: Lock) => T | PromiseLike<T>} [body]
   * @returns {Promise<T>}
   */
  async #using(names, options, body) {
    if (!body) [options, body] = [{}, options]
    const lock = await new Attempt(this.#client, this.#idle, names, options).run()
    if (!lock) throw new LockNotAcquired(names)
    let result
    try {
      result = await /** @type {(lock: Lock) => T} */ (body)(lock)
    } catch (e) {
      await lock.release().catch(() => {}) // what body throws comes first
      throw e
    }
    await lock.release()
    return result
  }
}

/** @param {Iterable<string | Buffer>} names */
function several(names) {
  if (typeof names === 'string' || Buffer.isBuffer(names)) throw new TypeError(`${names} is one name, not several`)
  return [...names]
}

/** One acquisition. */
class Attempt {
  #client
  #idle
  #names
  #options
  #request
  #end
  #limit
  /** Of its own. @type {Connection | undefined} */
  #conn
  #first = true // first it is sent like every other command; then it waits, which would hold up what is behind it
  #unsure = false // a LOCK was not answered: it may be granted

  /**
   * @param {Client} client
   * @param {Idle} idle
   * @param {(string | Buffer)[]} names
   * @param {LockOptions} options
   */
  constructor(client, idle, names, options) {
    this.#client = client
    this.#idle = idle
    this.#names = names
    this.#options = options
    this.#request = new Request(names, options)
    this.#end = now() + (options.wait ?? 0)
    this.#limit = Math.min(client.timeout, ANSWER)
  }

  async run() {
    let lock = null
    try {
      lock = await this.#take()
    } finally {
      if (this.#unsure && !lock) {
        this.#conn?.close()
        giveBack(this.#client, this.#request)
      } else if (this.#conn && !this.#options.session) {
        this.#idle.put(this.#conn)
      } else if (!lock) {
        this.#conn?.close()
      }
    }
    return lock
  }

  /** @returns {Promise<Lock | null>} */
  async #take() {
    const { signal } = this.#options
    let waits = pauses()
    for (;;) {
      signal?.throwIfAborted()
      const asked = now()
      try {
        const reply = await this.#ask(asked)
        if (reply) return this.#granted(/** @type {any} */ (reply), asked)
        if (now() >= this.#end) return null
        waits = pauses()
      } catch (e) {
        this.#conn?.close()
        this.#conn = undefined
        if (e instanceof Late) {
          giveBack(this.#client, this.#request)
          this.#request = new Request(this.#names, this.#options) // the other has been used up
        } else {
          // or several were granted, and lost some before that was answered
          this.#unsure ||= signal?.aborted || isTransient(e) || isLoss(e)
        }
        signal?.throwIfAborted()
        if (!again(this.#client, e) || now() >= this.#end) throw e
        await sleep(Math.min(waits.next().value, Math.ceil(this.#end - now())), undefined, { signal }).catch(() => {})
      }
    }
  }

  /**
   * Sends LOCK once.
   *
   * @param {number} asked
   */
  #ask(asked) {
    const { session = false, signal } = this.#options
    if (this.#first && !session) {
      this.#first = false
      return within(this.#limit, this.#client.send(this.#request.lock(0)), signal)
    }
    const wait = Math.max(0, Math.min(this.#end - asked, this.#client.timeout / 2, MAX_PIECE))
    this.#conn ??= (session ? undefined : this.#idle.take()) ?? this.#client.open()
    return within(wait + Math.max(this.#limit, MIN_ANSWER), this.#conn.send(this.#request.lock(wait)), signal)
  }

  /**
   * @param {unknown[]} reply
   * @param {number} asked
   */
  #granted(reply, asked) {
    const { validity, fences } = this.#request.granted(reply)
    const lease = new Lease(this.#options, asked, validity)
    if (now() >= lease.until) throw new Late()
    return new Lock(this.#client, this.#options.session ? this.#conn : undefined, this.#request, fences, lease, this.#options.onLost)
  }
}

/** A grant was over when it arrived. */
class Late extends Error {
  constructor() {
    super('the lock was over when the answer came')
  }
}

/** @implements {API.Lock} */
export class Lock {
  #client
  #conn
  #request
  #lease
  #onLost
  #loss = new AbortController()
  /** @type {NodeJS.Timeout | undefined} */
  #timer
  /** @type {Promise<void> | undefined} */
  #released

  /**
   * @param {Client} client
   * @param {Connection | undefined} conn of the session
   * @param {Request} request
   * @param {Map<string | Buffer, number>} fences
   * @param {Lease} lease
   * @param {LockOptions['onLost']} onLost
   */
  constructor(client, conn, request, fences, lease, onLost) {
    this.names = request.names
    this.owner = request.owner
    this.fences = fences
    this.#client = client
    this.#conn = conn
    this.#request = request
    this.#lease = lease
    this.#onLost = onLost
    conn?.ended.then(why => {
      lease.ended(why)
      this.#keep()
    })
    this.#keep()
  }

  get name() {
    return only(this.names)
  }

  get fence() {
    return only([...this.fences.values()])
  }

  get validUntil() {
    return this.#lease.until
  }

  get remaining() {
    return this.#lease.reason ? 0 : Math.max(0, this.#lease.until - now())
  }

  get lost() {
    return this.remaining === 0 && this.#lease.reason !== RELEASED
  }

  get signal() {
    return this.#loss.signal
  }

  check() {
    if (this.remaining === 0) throw this.#lost()
  }

  release() {
    if (this.#released) return this.#released.catch(() => {})
    this.#released = this.#release()
    return this.#released
  }

  [Symbol.asyncDispose]() {
    return this.release()
  }

  async #release() {
    clearTimeout(this.#timer)
    try {
      if (this.lost) {
        giveBack(this.#client, this.#request, now())
        throw this.#lost()
      }
      this.#lease.released()
      await unlock(this.#client, this.#request, this.#lease.until, this.#conn)
    } catch (e) {
      throw isLoss(e) ? new LockLost(this.names, /** @type {Error} */ (e).message) : e
    } finally {
      this.#conn?.close()
    }
  }

  #lost() {
    return new LockLost(this.names, this.#lease.reason ?? 'its validity ended')
  }

  /** Keeps the lock until it is released or lost. */
  #keep() {
    clearTimeout(this.#timer)
    if (this.#released || this.#loss.signal.aborted) return
    if (this.#lease.next(now())) this.#renew()
    if (this.#lease.reason) return this.#lose()
    const delay = Math.ceil(this.#lease.wakeAt() - now())
    this.#timer = setTimeout(() => this.#keep(), Math.min(Math.max(1, delay), MAX_DELAY))
    this.#timer.unref() // it is the connection that keeps a program running
  }

  async #renew() {
    try {
      const validity = number(await (this.#conn ?? this.#client).send(this.#request.renew(this.fences)))
      this.#lease.answered(validity, now())
    } catch (e) {
      this.#lease.failed(e, now())
    }
    this.#keep()
  }

  #lose() {
    const loss = this.#lost()
    this.#conn?.close()
    this.#loss.abort(loss)
    this.#onLost?.(loss)
  }
}

/**
 * @template T
 * @param {T[]} values
 */
function only(values) {
  if (values.length !== 1) throw new TypeError('a lock of several names has names and fences')
  return values[0]
}

/** Connections that LOCKs have waited on, for the next ones that wait. */
class Idle {
  /** The last one was used last. @type {{ conn: Connection, timer: NodeJS.Timeout }[]} */
  #conns = []

  take() {
    for (let last; (last = this.#conns.pop());) {
      clearTimeout(last.timer)
      if (last.conn.isOpen()) return last.conn
      last.conn.close()
    }
  }

  /** @param {Connection} conn */
  put(conn) {
    if (this.#conns.length === MAX_IDLE) return conn.close()
    const timer = setTimeout(() => {
      this.#conns = this.#conns.filter(c => c.conn !== conn)
      conn.close()
    }, IDLE)
    this.#conns.push({ conn, timer })
  }
}

/**
 * Whether a command that failed may do better.
 *
 * @param {Client} client
 * @param {unknown} error
 */
const again = (client, error) => isTransient(error) && !client.closed()

/**
 * Sends UNLOCK until it is answered, or until that time; first over conn, if there is one.
 *
 * @param {Client} client
 * @param {Request} request
 * @param {number} until
 * @param {{ send: Client['send'] }} [conn]
 */
async function unlock(client, request, until, conn = client) {
  const limit = Math.max(Math.min(client.timeout, ANSWER), MIN_ANSWER)
  let over = conn
  for (const pause of pauses()) {
    try {
      return await within(limit, over.send(request.unlock()))
    } catch (e) {
      if (!again(client, e) || now() >= until) throw e
    }
    over = client
    await sleep(Math.min(pause, Math.ceil(until - now())))
  }
}

/**
 * Gives back what may have been granted, in the background.
 *
 * @param {Client} client
 * @param {Request} request
 */
function giveBack(client, request, until = now() + request.ttl) {
  unlock(client, request, until).catch(() => {})
}

/**
 * What becomes of the promise, unless it takes longer than ms, or signal is aborted before.
 *
 * @template T
 * @param {number} ms
 * @param {Promise<T>} promise
 * @param {AbortSignal} [signal]
 * @returns {Promise<T>}
 */
async function within(ms, promise, signal) {
  /** @type {NodeJS.Timeout | undefined} */
  let timer
  /** @type {(() => void) | undefined} */
  let aborted
  const cut = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer in ${Math.round(ms)} ms`)), Math.min(ms, MAX_DELAY))
    aborted = () => reject(signal?.reason)
    signal?.addEventListener('abort', aborted)
  })
  try {
    return await /** @type {Promise<T>} */ (Promise.race([promise, cut]))
  } finally {
    clearTimeout(timer)
    if (aborted) signal?.removeEventListener('abort', aborted)
  }
}
