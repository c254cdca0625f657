// What an application does with ioredis, through the proxy: see ../doc.go.
import { createHash } from "node:crypto";
import Redis from "ioredis";
import { assert, askRestart, binary, host, large as value, port, refused, run, text } from "./checks.mjs";

let protocol = 2;
const open = (more = {}) => new Redis({ host, port, protocol, ...more });

async function strings(r) {
  assert.equal(await r.set(binary, binary), "OK");
  assert.deepEqual(await r.getBuffer(binary), binary);
  assert.equal(await r.get("none"), null);
  await r.hset("hash", { a: 1, b: 2 });
  assert.deepEqual(await r.hgetall("hash"), { a: "1", b: "2" });
  await r.zadd("zset", 1.5, "x", 2, "y");
  assert.deepEqual(await r.zrange("zset", 0, -1, "WITHSCORES"), ["x", "1.5", "y", "2"]);
}

async function pipeline(r) {
  const p = r.pipeline();
  for (let i = 0; i < 1000; i++) p.incr("n");
  assert.deepEqual(await p.exec(), Array.from({ length: 1000 }, (_, i) => [null, i + 1]));
}

async function transaction(r) {
  const other = open();
  await r.watch("watched");
  assert.deepEqual(await r.multi().set("watched", "mine").exec(), [[null, "OK"]]);
  await r.watch("watched");
  await other.set("watched", "theirs");
  assert.equal(await r.multi().set("watched", "mine").exec(), null);
  other.disconnect();
}

async function blocking(r) {
  const other = open();
  assert.equal(await other.blpop("queue", 0.1), null);
  setTimeout(() => r.rpush("queue", "late"), 100);
  assert.deepEqual(await other.blpop("queue", 5), ["queue", "late"]);
  other.disconnect();
}

async function pubsub(r) {
  const sub = open();
  const got = [];
  const all = new Promise((yes) => {
    const add = (m) => got.push(m) === 2 && yes();
    sub.on("messageBuffer", (_, m) => add(m));
    sub.on("pmessage", (pattern) => add(pattern));
  });
  assert.equal(await sub.subscribe("channel"), 1);
  assert.equal(await sub.psubscribe("pat*"), 2);
  await r.publish("channel", binary);
  await r.publish("pattern", "m");
  await all;
  assert.deepEqual(got, [binary, "pat*"]);
  await sub.quit();
}

async function script(r) {
  await r.script("FLUSH");
  await refused("NOSCRIPT", () => r.evalsha(createHash("sha1").update(text).digest("hex"), 1, "counted", "x"));
  r.defineCommand("counted", { numberOfKeys: 1, lua: text });
  assert.deepEqual(await r.counted("counted", "x"), ["counted", "x", 1]);
  assert.deepEqual(await r.counted("counted", "x"), ["counted", "x", 2]);
}

async function scan(r) {
  await r.mset(Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`scan:${i}`, i])));
  const seen = new Set();
  for await (const keys of r.scanStream({ match: "scan:*", count: 50 })) keys.forEach((k) => seen.add(k));
  assert.equal(seen.size, 500);
}

async function select(r) {
  const other = open({ db: 3 });
  await other.set("only", "three");
  assert.equal(await r.get("only"), null);
  await other.select(0);
  assert.equal(await other.get("only"), null);
  other.disconnect();
}

async function auth() {
  const user = open({ username: "app", password: "pw" });
  assert.equal(await user.call("ACL", "WHOAMI"), "app");
  assert.equal(await user.set("app:1", "x"), "OK");
  await refused("NOPERM", () => user.set("other", "x"));
  user.disconnect();
}

async function large(r) {
  await r.set("large", value);
  assert.ok(value.equals(await r.getBuffer("large")));
}

async function locks(r) {
  const [fence, owner, validity, holds] = await r.call("LOCK", "job", "30s");
  assert.ok(fence > 0 && owner.length > 0 && validity > 0 && validity <= 30000 && holds === 1);
  assert.equal(await r.call("LOCK", "job", "30s", "OWNER", "you"), null);
  assert.ok((await r.call("RENEW", "job", "20s")) <= 20000);
  assert.equal(await r.call("UNLOCK", "job"), 1);
  await refused("LOCKLOST", () => r.call("RENEW", "job", "30s", "you"));
}

async function reconnect(r) {
  await r.set("kept", "1");
  await askRestart();
  assert.equal(await r.get("kept"), "1");
}

for (const name of process.env.PROTOCOLS.split(" ")) {
  protocol = Number(name.at(-1));
  const r = open();
  r.on("error", () => {}); // while the proxy restarts
  await r.flushall();
  await run(name, [strings, pipeline, transaction, blocking, pubsub, script, scan, select, auth, large, locks, reconnect], r);
  r.disconnect();
}
process.exit(0);
