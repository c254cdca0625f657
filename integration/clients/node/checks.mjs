// The part that the programs of both clients have in common: see ../doc.go.
import assert from "node:assert/strict";
import readline from "node:readline";

export { assert };
export const [host, port] = process.env.PROXY.split(":");
export const binary = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
export const large = Buffer.concat(Array(5 << 12).fill(binary));
export const text = "return {KEYS[1], ARGV[1], redis.call('incr', KEYS[1])}";

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

export async function askRestart() {
  console.log("restart");
  await lines.next();
}

// refused runs f, which must fail with a text that begins with word.
export async function refused(word, f) {
  await assert.rejects(f, (e) => {
    assert.ok(String(e.message).startsWith(word), `${e.message} is not ${word}`);
    return true;
  });
}

const asked = process.env.CHECKS.split(" ");

// run does each check that is asked for in turn and reports on it; one that hangs has failed.
export async function run(protocol, checks, client) {
  for (const check of checks.filter((c) => asked.includes(c.name))) {
    let timer;
    const late = new Promise((_, no) => (timer = setTimeout(() => no(new Error("nothing for 20 s")), 20000)));
    try {
      await Promise.race([check(client), late]);
      console.log(`ok ${protocol} ${check.name}`);
    } catch (e) {
      console.log(`failed ${protocol} ${check.name}: ${e.message.replaceAll("\n", " ")}`);
    }
    clearTimeout(timer);
  }
}
