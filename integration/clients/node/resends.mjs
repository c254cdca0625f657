// Takes and gives back a lock over and over, and says when.
import Redis from 'ioredis'
import { acquire, release } from './lock.mjs'

const [host, port] = process.env.PROXY.split(':')
const redis = new Redis({ host, port, commandTimeout: 200 })
redis.on('error', () => {})
const end = performance.now() + 1000 * process.env.SECONDS
while (performance.now() < end) {
  const lock = await acquire(redis, 'job', 30000, 20000, 100)
  process.stdout.write(`${process.env.WHO} locked ${lock.fence}\n`)
  process.stdout.write(`${process.env.WHO} unlocking\n`)
  await release(lock)
}
redis.disconnect()
