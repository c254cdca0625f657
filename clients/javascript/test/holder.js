// Takes the lock NAME and keeps it: holder.js KIND NAME OPTIONS, the options as JSON.
import { setTimeout as sleep } from 'node:timers/promises'
import { Locks } from 'lockproxy'
import { clock, kinds, proxies } from './world.js'

const [kind, name, options] = process.argv.slice(2)
const locks = new Locks(await kinds.find(k => k.name === kind).connect(proxies[0]))
await locks.using(name, JSON.parse(options), async lock => {
  console.log(lock.fence)
  for (let seen = 0; ; await sleep(10)) {
    lock.check()
    if (lock.validUntil !== seen) console.log(clock() + lock.validUntil - performance.now())
    seen = lock.validUntil
  }
})
