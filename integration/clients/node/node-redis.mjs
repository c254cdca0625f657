// What an application does with node-redis, through the proxy: see ../doc.go.
import { createHash } from "node:crypto";
import { createClient, defineScript, RESP_TYPES, WatchError } from "redis";
import { assert, askRestart, binary, host, large as value, port, refused, run, text } from "./checks.mjs";

const counted = defineScript({
  SCRIPT: text,
  NUMBER_OF_KEYS: 1,
  parseCommand: (parser, key, arg) => { parser.pushKey(key); parser.push(arg); },
  transformReply: undefined,
});
let RESP = 2;

async function open(more = {}) {
  const c = createClient({ socket: { host, port: Number(port) }, RESP, scripts: { counted }, ...more });
  c.on("error", () => {}); // while the proxy restarts
  return c.connect();
}

const bytes = (c) => c.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });

async function strings(r) {
  assert.equal(await r.set(binary, binary), "OK");
  assert.deepEqual(await bytes(r).get(binary), binary);
  assert.equal(await r.get("none"), null);
  await r.hSet("hash", { a: 1, b: 2 });
  assert.deepEqual({ ...(await r.hGetAll("hash")) }, { a: "1", b: "2" });
  await r.zAdd("zset", [{ score: 1.5, value: "x" }, { score: 2, value: "y" }]);
  assert.deepEqual((await r.zRangeWithScores("zset", 0, -1)).map((e) => [e.value, e.score]), [["x", 1.5], ["y", 2]]);
}

async function pipeline(r) {
  const all = await Promise.all(Array.from({ length: 1000 }, () => r.incr("n")));
  assert.deepEqual(all, Array.from({ length: 1000 }, (_, i) => i + 1));
}

async function transaction(r) {
  const other = await open();
  await other.watch("watched");
  assert.deepEqual(await other.multi().set("watched", "mine").exec(), ["OK"]);
  await other.watch("watched");
  await r.set("watched", "theirs");
  await assert.rejects(() => other.multi().set("watched", "mine").exec(), WatchError);
  other.destroy();
}

async function blocking(r) {
  const other = await open();
  assert.equal(await other.blPop("queue", 0.1), null);
  setTimeout(() => r.rPush("queue", "late"), 100);
  assert.deepEqual({ ...(await other.blPop("queue", 5)) }, { key: "queue", element: "late" });
  other.destroy();
}

async function pubsub(r) {
  const sub = await open();
  const got = [];
  let enough;
  const all = new Promise((yes) => (enough = yes));
  const add = (m) => got.push(m) === 2 && enough();
  await sub.subscribe("channel", (m) => add(m), true);
  await sub.pSubscribe("pat*", (m, channel) => add(channel));
  await r.publish("channel", binary);
  await r.publish("pattern", "m");
  await all;
  assert.deepEqual(got, [binary, "pattern"]);
  await sub.unsubscribe();
  await sub.pUnsubscribe();
  assert.equal(String(await sub.ping()), "PONG"); // a Buffer in RESP2, without a proxy too
  sub.destroy();
}

async function script(r) {
  await r.scriptFlush();
  const sha = createHash("sha1").update(text).digest("hex");
  await refused("NOSCRIPT", () => r.evalSha(sha, { keys: ["counted"], arguments: ["x"] }));
  assert.deepEqual(await r.counted("counted", "x"), ["counted", "x", 1]);
  assert.deepEqual(await r.counted("counted", "x"), ["counted", "x", 2]);
}

async function scan(r) {
  await r.mSet(Array.from({ length: 500 }, (_, i) => [`scan:${i}`, String(i)]));
  const seen = new Set();
  for await (const keys of r.scanIterator({ MATCH: "scan:*", COUNT: 50 })) [keys].flat().forEach((k) => seen.add(k));
  assert.equal(seen.size, 500);
}

async function select(r) {
  const other = await open({ database: 3 });
  await other.set("only", "three");
  assert.equal(await r.get("only"), null);
  await other.select(0);
  assert.equal(await other.get("only"), null);
  other.destroy();
}

async function auth() {
  const user = await open({ username: "app", password: "pw" });
  assert.equal(await user.sendCommand(["ACL", "WHOAMI"]), "app");
  assert.equal(await user.set("app:1", "x"), "OK");
  await refused("NOPERM", () => user.set("other", "x"));
  user.destroy();
}

async function large(r) {
  await r.set("large", value);
  assert.ok(value.equals(await bytes(r).get("large")));
}

async function locks(r) {
  const [fence, owner, validity, holds] = await r.sendCommand(["LOCK", "job", "30s"]);
  assert.ok(fence > 0 && owner.length > 0 && validity > 0 && validity <= 30000 && holds === 1);
  assert.equal(await r.sendCommand(["LOCK", "job", "30s", "OWNER", "you"]), null);
  assert.ok((await r.sendCommand(["RENEW", "job", "20s"])) <= 20000);
  assert.equal(await r.sendCommand(["UNLOCK", "job"]), 1);
  await refused("LOCKLOST", () => r.sendCommand(["RENEW", "job", "30s", "you"]));
}

async function reconnect(r) {
  await r.set("kept", "1");
  await askRestart();
  assert.equal(await r.get("kept"), "1");
}

for (const protocol of process.env.PROTOCOLS.split(" ")) {
  RESP = Number(protocol.at(-1));
  const r = await open();
  await r.flushAll();
  await run(protocol, [strings, pipeline, transaction, blocking, pubsub, script, scan, select, auth, large, locks, reconnect], r);
  r.destroy();
}
process.exit(0);
