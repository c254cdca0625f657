// What the tests run against: two proxies on the same lock nodes, whose addresses are in PROXIES, a third that speaks TLS, and
// links in front of them.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import net from 'node:net'
import readline from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { createClient } from 'redis'

export const LONG = 60_000 // ms; a lease that no test waits for the end of, and how long a test waits for what must come
export const SOON = LONG / 2 // well before the end of such a lease

const address = text => {
  const [host, port] = text.split(':')
  return { host, port: Number(port) }
}
export const proxies = (process.env.PROXIES ?? '').split(' ').filter(Boolean).map(address)

/** Settings for the proxy that speaks TLS, with a user who may write app:*, and database 3. */
export const strict = () => ({ ...address(process.env.TLS_PROXY), tls: { ca: readFileSync(process.env.TLS_CA) }, username: 'app', password: 'pw', db: 3 })

/**
 * The clients that all tests are for. Each is made of settings of ioredis; timeout is after how many ms it gives up on an answer.
 */
export const kinds = [2, 3].flatMap(protocol => [
  {
    name: `ioredis RESP${protocol}`,
    connect({ timeout, ...settings }) {
      const redis = new Redis({ ...settings, protocol, commandTimeout: timeout, retryStrategy: () => 50 })
      redis.on('error', () => {})
      return redis
    },
    ping: redis => redis.call('PING'),
    close: redis => redis.disconnect(),
  },
  {
    name: `node-redis RESP${protocol}`,
    async connect({ host, port, tls, db, timeout, ...settings }) {
      const socket = { host, port, ...tls && { tls: true, ...tls }, socketTimeout: timeout, reconnectStrategy: () => 50 }
      const client = createClient({ ...settings, RESP: protocol, database: db, pingInterval: timeout && timeout / 4, socket })
      client.on('error', () => {})
      return client.connect()
    },
    ping: client => client.sendCommand(['PING']),
    close: client => client.destroy(),
  },
])

/** Notes what a client, and each that it is duplicated to, sends. */
export function record(client, sent = []) {
  const { call, sendCommand, duplicate } = client
  if (call) {
    client.call = (...command) => {
      sent.push(command)
      return call.apply(client, command)
    }
  } else {
    client.sendCommand = (command, ...more) => {
      sent.push(command)
      return sendCommand.call(client, command, ...more)
    }
  }
  client.duplicate = (...overrides) => {
    const other = duplicate.apply(client, overrides)
    record(other, sent)
    return other
  }
  return sent
}

export async function until(condition, what) {
  for (const end = performance.now() + LONG; ;) {
    const value = await condition()
    if (value) return value
    if (performance.now() > end) throw new Error(what)
    await sleep(5)
  }
}

/** ms of a clock that all processes share. */
export const clock = () => Number(process.hrtime.bigint()) / 1e6

/** Looks at locks, and takes them away, as an operator does. */
export class Look {
  #redis = new Redis({ ...proxies[0], protocol: 2 })

  close() {
    this.#redis.disconnect()
  }

  async holder(name) {
    const info = await this.#redis.call('LOCKCTL', 'INFO', name)
    return info ? info[info.indexOf('owner') + 1] : null
  }

  async waiting(name) {
    return (await this.#redis.call('LOCKCTL', 'WAITERS', name)).length
  }

  force(name) {
    return this.#redis.call('LOCKCTL', 'FORCE', name)
  }
}

/** Another process that has a lock, see holder.js. It says its fence, and the end of its validity whenever that moves. */
export class Holder {
  static async start(...args) {
    const holder = new Holder()
    const script = fileURLToPath(new URL('holder.js', import.meta.url))
    holder.process = spawn(process.execPath, [script, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
    holder.lines = readline.createInterface({ input: holder.process.stdout })[Symbol.asyncIterator]()
    holder.fence = await holder.says()
    return holder
  }

  async says() {
    const { done, value } = await this.lines.next()
    if (done) throw new Error('the holder has ended')
    return Number(value)
  }

  /** Kills it with -9, and returns the last that it said, if anything. */
  async kill() {
    this.process.kill('SIGKILL')
    let said
    for await (const line of this.lines) said = Number(line)
    return said
  }
}

/** A holder that has been renewed for longer than its ttl, and the end of its validity. */
export async function holdsOn(...args) {
  for (let tries = 0; tries < 10; tries++) { // on a busy machine one may lose its lock
    const holder = await Holder.start(...args)
    try {
      for (let i = 0; i < 4; i++) await holder.says()
      return [holder, await holder.says()]
    } catch {
      await holder.kill()
    }
  }
  throw new Error('no holder holds on')
}

/** Forwards connections to a proxy, until it falls silent. */
export class Link {
  static async start(to = proxies[0]) {
    const link = new Link()
    link.to = to
    link.open = new Set()
    link.server = net.createServer(near => link.#forward(near)).listen(0, '127.0.0.1')
    await once(link.server, 'listening')
    link.address = { host: '127.0.0.1', port: link.server.address().port }
    return link
  }

  #forward(near) {
    const far = net.connect(this.to)
    this.open.add(near)
    for (const [from, to] of [[near, far], [far, near]]) {
      from.on('data', data => this.silent || to.write(data))
      from.on('error', () => {})
      from.on('close', () => {
        to.destroy()
        this.open.delete(near)
      })
    }
  }

  /** Ends the connections that there are. */
  hangUp() {
    for (const near of this.open) near.destroy()
  }

  close() {
    this.server.close()
    this.hangUp()
  }
}
