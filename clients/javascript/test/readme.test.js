// The programs that README.md shows, as they stand there, twice each: a lock that the first did not give back would not be granted to
// the second. `await using` is compiled, since Node.js 20 has none.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import ts from 'typescript'
import { proxies } from './world.js'

const readme = await readFile(new URL('../README.md', import.meta.url), 'utf8')
const programs = [...readme.matchAll(/```js\n(.*?)```/gs)].map(m => m[1])

for (const i of [0, 1, 2]) {
  test(`program ${i}`, { skip: !proxies.length && 'PROXIES names no proxy' }, async t => {
    const file = fileURLToPath(new URL(`readme${i}.mjs`, import.meta.url))
    t.after(() => rm(file))
    const code = programs[i].replaceAll('localhost', proxies[0].host).replace('6380', proxies[0].port)
    await writeFile(file, ts.transpileModule(code, { compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext } }).outputText)
    for (let run = 0; run < 2; run++) {
      const { stdout } = await promisify(execFile)(process.execPath, [file])
      assert.match(stdout, /^mine, fences?( \d{16})+\n$/)
    }
  })
}
