// Takes and gives back a lock over and over, and says when: resends.js KIND
import { Locks } from 'lockproxy'
import { kinds } from './world.js'

const { PROXY, SECONDS, WHO } = process.env
const [host, port] = PROXY.split(':')
const kind = kinds.find(k => k.name === process.argv[2])
const client = await kind.connect({ host, port: Number(port), timeout: 200 })
const locks = new Locks(client)
const say = what => process.stdout.write(`${WHO} ${what}\n`)
for (const end = performance.now() + 1_000 * SECONDS; performance.now() < end;) {
  await locks.using('job', { wait: 20_000 }, lock => {
    say(`locked ${lock.fence}`)
    say('unlocking')
  })
}
kind.close(client)
