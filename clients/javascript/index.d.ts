/** Distributed locks of lockproxy, on the ioredis or node-redis client that an application has already. Times are in milliseconds. */

/** A Redis of ioredis. */
export interface Ioredis {
  readonly status: string
  readonly options: { commandTimeout?: number | undefined; socketTimeout?: number | undefined }
  call(command: string, ...args: (string | Buffer)[]): Promise<unknown>
  duplicate(override?: object): Ioredis
  on(event: string, listener: (...args: any[]) => void): unknown
  disconnect(): void
}

/** What createClient of node-redis returns. */
export interface NodeRedis {
  readonly isOpen: boolean
  readonly isPubSubActive: boolean
  readonly options?: { socket?: object | undefined } | undefined
  sendCommand(args: (string | Buffer)[]): Promise<unknown>
  duplicate(overrides?: any): NodeRedis
  on(event: string, listener: (...args: any[]) => void): unknown
  connect(): Promise<unknown>
  destroy(): void
}

export interface LockOptions {
  /** For how long the lock outlives a holder that has died: 30 s. At most the proxy's --max-ttl. */
  ttl?: number
  /** How long to stand in line while another has the lock: 0, which asks once. */
  wait?: number
  /** Whether it is renewed at a third of the ttl until it is released: true. If not, it ends by itself. */
  renew?: boolean
  /** It is not renewed for longer, so that a program that is stuck does not hold it for ever: an hour. */
  maxHold?: number
  /** Binds the lock to a connection of its own: it is free milliseconds after this process has died, whatever the ttl. */
  session?: boolean
  /** For who only reads: others may read at the same time, and nobody has the lock for itself. All proxies must know it. */
  shared?: boolean
  /** For who shares the lock with a limit: at most so many have it at the same time, of those that say so. Not with shared. All proxies must know it. */
  permits?: number
  /** Is called once when the lock is lost. What it throws nobody catches: it ends the program, as a rejection of an async one does. */
  onLost?: (loss: LockLost) => void
  /** What LOCKCTL and the page show beside the owner. */
  info?: string
  /** Ends the attempt to take the lock; it does nothing to a lock that is held. */
  signal?: AbortSignal
}

/** Takes locks of the lockproxy that a client is connected to. */
export class Locks {
  constructor(client: Ioredis | NodeRedis)

  /**
   * Takes the lock, which is then renewed until it is released or lost; null if another has it, and still has when the wait is over.
   * When it throws, nobody knows who has the lock, and what may have been granted is given back.
   *
   *     await using lock = await locks.acquire('report', { wait: 10_000 })
   *     if (!lock) return
   */
  acquire(name: string | Buffer, options?: LockOptions): Promise<Lock | null>

  /**
   * Takes up to 64 names at once, all of them or none. What waits holds none of them, so that their order does not matter. They are renewed and released
   * together, and the lock is lost when one of them is. There is no permits. All proxies must know LOCKALL.
   */
  acquireAll(names: Iterable<string | Buffer>, options?: Omit<LockOptions, 'permits'>): Promise<Lock | null>

  /**
   * Runs body while it has the lock, and gives it back. It throws LockNotAcquired if another has the lock, what body throws, or LockLost
   * if the lock was lost before body had ended.
   */
  using<T>(name: string | Buffer, body: (lock: Lock) => T | PromiseLike<T>): Promise<T>
  using<T>(name: string | Buffer, options: LockOptions, body: (lock: Lock) => T | PromiseLike<T>): Promise<T>

  /** The same as using, for several names: see acquireAll. */
  usingAll<T>(names: Iterable<string | Buffer>, body: (lock: Lock) => T | PromiseLike<T>): Promise<T>
  usingAll<T>(names: Iterable<string | Buffer>, options: Omit<LockOptions, 'permits'>, body: (lock: Lock) => T | PromiseLike<T>): Promise<T>
}

/** A lock that we have until it is released or lost. */
export interface Lock extends AsyncDisposable {
  /** Of a lock of several names this throws. */
  readonly name: string | Buffer
  readonly owner: string
  /** A number that is larger with every new holder of the name; with shared not smaller. Of a lock of several names this throws. */
  readonly fence: number
  readonly names: readonly (string | Buffer)[]
  /** The fence of each name. */
  readonly fences: ReadonlyMap<string | Buffer, number>
  /** Until when, of performance.now(), it is safe to work; later after each renewal. */
  readonly validUntil: number
  /** For how long it is safe to work, if the lock is not renewed; 0 if it is lost or was released. */
  readonly remaining: number
  readonly lost: boolean
  /** Is aborted when the lock is lost, with a LockLost as its reason. */
  readonly signal: AbortSignal
  /** Throws LockLost if the lock is lost, or was released. */
  check(): void
  /** Gives the lock back. It throws LockLost if the lock was lost before. A second call waits for the first. */
  release(): Promise<void>
}

/** Another has the lock, and still had when the wait was over. */
export class LockNotAcquired extends Error {}

/** The lock was lost before it was released: another may have it. */
export class LockLost extends Error {}
