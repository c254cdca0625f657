// The page. Times come as durations and are counted on from their arrival, so that no two clocks
// need agree.

import { watchAdopt } from "./adopt.js";
import { byId, cell, element, setClass, setText, Table, textCell } from "./dom.js";
import { clock, count, day, rate, span, took } from "./format.js";
import { drawNode, showHistory, watchHistory } from "./history.js";
import { nameCell, takeLocks, tick } from "./locks.js";
import { bar, drawBar, drawQuorum, spark } from "./spark.js";

const SILENT_MS = 4000; // without an event: the page is not live
const STUCK_MS = 12000; // without an event: connect again
const HIDDEN_MS = 60000; // in the background: disconnect

let state = null; // the last event of its kind, and when it came
let stateAt = 0;
let source = null;
let heardAt = performance.now();
let lostAt = null; // a Date, while the page is not live
let retry = 0;

// refusals explain the errors with which a node refuses to vote.
const refusals = {
  OOM: "it is full: see its maxmemory",
  READONLY: "it has become a replica",
  MISCONF: "it cannot save, and so takes no writes",
  NOREPLICAS: "it has fewer replicas than it must have",
  NOPERM: "its user may not do what locks need",
  NOAUTH: "it asks for a password",
  WRONGPASS: "user or password are wrong",
  LOADING: "it reads its data after a start",
};

// stateSince stays the same for a state, although the durations of its events differ a little.
function stateSince(td, n) {
  const at = Date.now() - n.since_ms - sinceState();
  if (td.dataset.state !== n.state || Math.abs(at - td.dataset.at) > 2000) {
    td.dataset.state = n.state;
    td.dataset.at = at;
  }
  const date = new Date(Number(td.dataset.at));
  return " since " + (Date.now() - date < 86400000 ? "" : day.format(date) + ", ") + clock.format(date);
}

// quarantines are the longest that was left of each node's quarantine, so that what is left is a part of it.
const quarantines = new Map();

function quarantinePart(n) {
  if (n.state !== "quarantine") {
    quarantines.delete(n.address);
    return 0;
  }
  quarantines.set(n.address, Math.max(quarantines.get(n.address) || 1, n.quarantine_ms));
  return Math.max(0, n.quarantine_ms - sinceState()) / quarantines.get(n.address);
}

function stateWords(n, td) {
  const left = n.quarantine_ms - sinceState();
  return n.state === "unused" ? "unused until a LOCK" : n.votes ? "votes" : n.state === "quarantine" ? "quarantine, " + span(left + 999) + (n.copies ? " left at most" : " left") : n.state + (td ? stateSince(td, n) : "");
}

function showQuorum() {
  const nodes = state.nodes.map((n) => ({ ...n, part: quarantinePart(n) }));
  const others = state.nodes.filter((n) => !n.votes).map((n) => n.address + ": " + stateWords(n));
  drawQuorum(nodes, state.needed, nodes.filter((n) => n.votes).length + " of " + nodes.length + " lock nodes vote, " + state.needed + " are needed. " + others.join(". "));
}

const nodesTable = new Table("nodes", [
  {
    label: "Node",
    className: "head",
    make: (td) => td.append(element("span", undefined, "number"), element("span")),
    fill: (td, n) => {
      setText(td.children[0], String(state.nodes.indexOf(n) + 1));
      setText(td.children[1], n.address);
    },
  },
  {
    label: "State",
    className: "",
    fill: (td, n) => {
      setClass(td, n.votes ? "good" : n.state === "quarantine" ? "warn" : "bad");
      setText(td, stateWords(n, td));
    },
  },
  {
    label: "Answers in",
    className: "drawing",
    make: (td) => td.append(element("span"), spark()),
    fill: (td, n) => {
      setText(td.firstChild, n.latency_us ? (n.latency_us / 1000).toFixed(2) + " ms" : "–");
      drawNode(td.lastChild, td.nextSibling.lastChild, n.address);
    },
  },
  { label: "Votes", className: "drawing", make: (td) => td.append(spark()), fill: () => {} },
  cell("Voted yes", "num", (n) => count(n.yes)),
  cell("Voted no", "num", (n) => count(n.no)),
  cell("Did not vote", "num", (n) => count(n.none)),
  cell("Queued", "num", (n) => count(n.queued)),
  {
    label: "Trouble",
    className: "wide",
    fill: (td, n) => {
      const waits = n.copies ? "it may have forgotten leases, and waits until it knows what the others hold" : "it may have forgotten leases, and waits until none can run";
      const doubts = "it had forgotten its locks, and abstains for the names that were held then, for " + span(n.doubt_ms - sinceState() + 999) + " at most";
      const says = n.state === "quarantine" ? waits : n.votes && n.doubt_ms ? doubts : n.state.startsWith("refuses") ? refusals[n.error] || "it answers, but not with votes" : n.state.startsWith("down") ? "" : n.error;
      setText(td, says + (n.paused && !n.state.startsWith("down") ? (says ? "; " : "") + "left alone for a moment" : ""));
      td.classList.toggle("none", td.textContent === "");
    },
  },
]);

const queuesTable = new Table("queues", [
  nameCell,
  {
    label: "Waiting",
    className: "num bars",
    make: (td) => td.append(bar(), element("span")),
    fill: (td, q) => {
      setText(td.lastChild, count(q.waiters));
      drawBar(td.firstChild, q.waiters / Math.max(...state.queues.map((one) => one.waiters)));
    },
  },
  cell("Longest", "num", (q) => span(q.longest_ms + sinceState())),
  textCell("Next", "text wide", (q) => q.next),
  textCell("Held by", "text wide", (q) => q.holder),
]);

const askedTable = new Table("asked", [
  nameCell,
  cell("Granted", "num", (h) => rate(h.grants)),
  cell("Refused", "num", (h) => rate(h.refusals)),
]);

const waitedTable = new Table("waited", [
  nameCell,
  cell("Waited", "num", (h) => took(h.waited_ms)),
  cell("Granted", "num", (h) => rate(h.grants)),
]);

const sinceState = () => (lostAt ? 0 : performance.now() - stateAt);

// Events.

function showState() {
  const p = state.proxy;
  setText(byId("version"), p.version);
  setText(byId("place"), location.host);
  showHealth();
  figure("up", span(p.uptime_ms + sinceState()));
  figure("clients", count(p.clients));
  figure("granted per s", rate(p.grants_per_s));
  figure("refused per s", rate(p.refusals_per_s));
  figure("no quorum per s", rate(p.noquorum_per_s), p.noquorum_per_s > 0 ? "bad" : "");
  figure("no quorum since start", count(p.noquorum));
  figure("waiting", count(p.waiting));
  figure("sessions with locks", count(p.sessions));
  figure("locks renewed for them", count(p.session_locks));
  setText(byId("nodes-note"), count(state.needed) + " of " + count(state.nodes.length) + " must agree");
  showQuorum();
  nodesTable.show(state.nodes, (n) => n.address);
  queuesTable.show(state.queues, (q) => q.id);
  const more = state.lines - state.queues.length;
  setText(byId("queues-note"), state.lines === 0 ? "" : count(p.waiting) + " in " + count(state.lines) + (state.lines === 1 ? " queue" : " queues") + (more > 0 ? "; the longest are shown" : ""));
  askedTable.show(state.asked, (h) => h.id);
  waitedTable.show(state.waited, (h) => h.id);
}

const figures = new Map();
function figure(name, value, className) {
  let dd = figures.get(name);
  if (!dd) {
    const div = element("div");
    dd = element("dd");
    div.append(element("dt", name), dd);
    byId("figures").append(div);
    figures.set(name, dd);
  }
  setText(dd, value);
  setClass(dd, className || "");
}

// showHealth shows the summary, which screen readers read when it changes.
function showHealth() {
  let { kind, says } = state.summary;
  const list = byId("checks");
  while (list.children.length > state.health.length) list.lastChild.remove();
  state.health.forEach((c, i) => {
    const li = list.children[i] || list.appendChild(element("li"));
    setText(li, (c.ok ? "✓ " : "✗ ") + c.of + ": " + c.says);
    setClass(li, c.ok ? "" : "bad");
  });
  if (lostAt) {
    kind = "bad";
    says = "Not live since " + clock.format(lostAt) + ". What is shown is as of then. Trying to reach the proxy again.";
  }
  const title = (kind === "bad" ? "✗ " : kind === "warn" ? "! " : "") + "lockproxy";
  const health = byId("health");
  setText(health, says);
  setClass(health, "status " + kind);
  if (document.title !== title) document.title = title;
  const live = byId("live");
  setText(live, lostAt ? "not live since " + clock.format(lostAt) : source ? "live" : "connecting");
  setClass(live, lostAt ? "lost" : "");
}

// Staying live.

function connect() {
  clearTimeout(retry);
  if (source) source.close();
  source = new EventSource("page/events?filter=" + encodeURIComponent(byId("filter").value));
  const mine = source;
  source.addEventListener("state", (e) => {
    heard();
    state = JSON.parse(e.data);
    stateAt = performance.now();
    showState();
    tick(state.force);
  });
  source.addEventListener("locks", (e) => {
    heard();
    takeLocks(JSON.parse(e.data));
  });
  source.addEventListener("error", () => {
    lost();
    if (mine === source && mine.readyState === EventSource.CLOSED) retry = setTimeout(connect, 3000);
  });
}

function heard() {
  heardAt = performance.now();
  if (lostAt) {
    lostAt = null;
    showHealth();
  }
}

function lost() {
  if (lostAt) return;
  lostAt = new Date();
  showHealth();
}

setInterval(() => {
  const silent = performance.now() - heardAt;
  if (silent > SILENT_MS) lost();
  if (silent > STUCK_MS && source && source.readyState !== EventSource.CLOSED) {
    heardAt = performance.now();
    connect();
  }
  if (state && !lostAt) showState();
  tick(state !== null && state.force);
}, 1000);

let hiding = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(() => {
      clearTimeout(retry);
      if (source) source.close();
      source = null;
    }, HIDDEN_MS);
  } else if (!source || source.readyState === EventSource.CLOSED) {
    connect();
  }
});

let typing = 0;
byId("filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    setText(byId("locks-note"), "looking");
    connect();
  }, 300);
});

// What came with the page is shown at once.
const first = JSON.parse(document.querySelector("main").dataset.first);
state = first.state;
stateAt = performance.now();
showState();
if (first.locks) takeLocks(first.locks);
tick(state.force);
connect();
watchAdopt();
setTimeout(watchHistory, showHistory(first.history));
