// The clients, as lib/locks.js uses them.

/**
 * @typedef {(string | Buffer)[]} Command
 *
 * @typedef {object} Client
 * @property {number} timeout  for how many ms the client waits for an answer; Infinity if that has no limit
 * @property {() => boolean} closed  whether it will not connect again
 * @property {(command: Command) => Promise<unknown>} send  over the connection that others use too
 * @property {() => Connection} open  a connection for one user; it connects with the first command, and once
 *
 * @typedef {object} Connection
 * @property {(command: Command) => Promise<unknown>} send
 * @property {() => boolean} isOpen  as far as is known
 * @property {Promise<unknown>} ended  by either side, and why
 * @property {() => void} close
 */

/**
 * @param {any} client
 * @returns {Client}
 */
export function adapt(client) {
  if (typeof client?.call === 'function' && typeof client.status === 'string' && !client.isCluster) return ioredis(client)
  if (typeof client?.sendCommand === 'function' && typeof client.isPubSubActive === 'boolean') return nodeRedis(client)
  throw new TypeError('lockproxy: the client is neither a Redis of ioredis nor one that createClient of node-redis made')
}

/**
 * @param {import('../index.js').Ioredis} redis
 * @returns {Client}
 */
function ioredis(redis) {
  const { commandTimeout, socketTimeout } = redis.options
  return {
    timeout: Math.min(commandTimeout || Infinity, socketTimeout || Infinity),
    // disconnect, while ioredis waits to connect again, ends that and leaves the status as it was
    closed: () => redis.status === 'end' || redis.status === 'reconnecting' && /** @type {any} */ (redis).manuallyClosing === true,
    send: async ([verb, ...args]) => redis.call(String(verb), ...args),
    open() {
      const own = redis.duplicate({
        lazyConnect: true, retryStrategy: null, reconnectOnError: null, enableOfflineQueue: true, enableReadyCheck: false, // a second connection would not have the lock
        commandTimeout: undefined, socketTimeout: undefined, // it may wait for long
        monitor: false, scripts: undefined, himportFieldsets: undefined,
      })
      /** @type {Promise<unknown>} */
      const ended = new Promise(resolve => {
        let why = new Error('closed')
        own.on('error', e => { why = e })
        own.on('end', () => resolve(why))
      })
      return {
        send: async ([verb, ...args]) => own.call(String(verb), ...args),
        isOpen: () => own.status !== 'end',
        ended,
        close: () => own.disconnect(),
      }
    },
  }
}

/**
 * @param {import('../index.js').NodeRedis} client
 * @returns {Client}
 */
function nodeRedis(client) {
  /** @type {{ socketTimeout?: number }} */
  const socket = client.options?.socket ?? {}
  return {
    timeout: socket.socketTimeout || Infinity, // its command timeout is only until the command is sent
    closed: () => !client.isOpen,
    send: async command => client.sendCommand(command),
    open() {
      const own = client.duplicate({
        socket: { ...socket, reconnectStrategy: false, socketTimeout: undefined },
        disableOfflineQueue: false, commandOptions: { timeout: undefined }, pingInterval: 0,
        clientSideCache: undefined, emitInvalidate: undefined, maintNotifications: 'disabled',
      })
      /** @type {Promise<unknown> | undefined} */
      let connected
      let over = false
      /** @type {(why: unknown) => void} */
      let end
      /** @type {Promise<unknown>} */
      const ended = new Promise(resolve => {
        end = why => {
          over = true
          resolve(why)
        }
      })
      const close = () => {
        end(new Error('closed'))
        Promise.resolve(connected).catch(() => {}).then(() => own.destroy()).catch(() => {}) // while it connects, that would leave the socket open
      }
      own.on('error', why => {
        end(why)
        close()
      })
      return {
        async send(command) {
          if (over) throw new Error('closed')
          await (connected ??= own.connect())
          if (over) throw new Error('closed')
          return own.sendCommand(command)
        },
        isOpen: () => !over,
        ended,
        close,
      }
    },
  }
}
