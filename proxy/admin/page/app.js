// The page. Times come as durations and are counted on from their arrival, so that no two clocks
// need agree.

import { watchAdopt } from "./adopt.js";
import { showDetail } from "./detail.js";
import { byId, cell, element, setClass, setText, Table, textCell } from "./dom.js";
import { askForce } from "./force.js";
import { clock, count, day, rate, span, took, whole } from "./format.js";

const GONE_MS = 4000; // for which the row of a lock that is not held any more stays
const NOTE_MS = 60000; // the same, with a note, of one that was released by force
const SILENT_MS = 4000; // without an event: the page is not live
const STUCK_MS = 12000; // without an event: connect again
const HIDDEN_MS = 60000; // in the background: disconnect

let state = null; // the last event of its kind, and when it came
let stateAt = 0;
let locks = null;
let locksAt = 0;
let still = false; // the rows of locks are frozen
let waitingLocks = null; // the last event meanwhile
let source = null;
let heardAt = performance.now();
let lostAt = null; // a Date, while the page is not live
let retry = 0;
const gone = new Map(); // rows of locks that are not held any more, by id
const notes = new Map(); // outcomes of FORCE, by id
const since = new Map(); // when a grant was made, by id and fence

// nameCell is the name of a lock, and opens its dialog.
const nameCell = {
  label: "Lock",
  className: "text head",
  make: (td, row) => {
    const button = element("button", undefined, "name");
    button.type = "button";
    button.append(element("bdi"));
    button.addEventListener("click", () => showDetail(row.data.id));
    td.append(element("span", undefined, "db"), button, element("span", undefined, "times"));
  },
  fill: (td, d) => {
    setText(td.children[0], d.db ? "db " + d.db : "");
    setText(td.children[1].firstChild, whole(d.name));
    setText(td.children[2], d.holds > 1 ? "×" + d.holds : "");
  },
};

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

const nodesTable = new Table("nodes", [
  cell("Node", "head", (n) => n.address),
  {
    label: "State",
    className: "",
    fill: (td, n) => {
      setClass(td, n.votes ? "good" : n.state === "quarantine" ? "warn" : "bad");
      const left = n.quarantine_ms - sinceState();
      setText(td, n.state === "unused" ? "unused until a LOCK" : n.votes ? "votes" : n.state === "quarantine" ? "quarantine, " + span(left + 999) + " left" : n.state + stateSince(td, n));
    },
  },
  cell("Voted yes", "num", (n) => count(n.yes)),
  cell("Voted no", "num", (n) => count(n.no)),
  cell("Did not vote", "num", (n) => count(n.none)),
  cell("Answers in", "num", (n) => (n.latency_us ? (n.latency_us / 1000).toFixed(2) + " ms" : "–")),
  {
    label: "Queued",
    className: "num",
    fill: (td, n) => {
      setText(td, count(n.queued));
      td.classList.toggle("none", n.queued === 0);
    },
  },
  {
    label: "Trouble",
    className: "wide",
    fill: (td, n) => {
      const says = n.state === "quarantine" ? "it may have forgotten leases, and waits until none can run" : n.state.startsWith("refuses") ? refusals[n.error] || "it answers, but not with votes" : n.state.startsWith("down") ? "" : n.error;
      setText(td, says + (n.paused ? (says ? "; " : "") + "left alone for a moment" : ""));
      td.classList.toggle("none", td.textContent === "");
    },
  },
]);

const locksTable = new Table("locks", [
  nameCell,
  textCell("Owner", "text wide", (l) => l.owner),
  cell("Since", "since", (l) => clock.format(grantedAt(l))),
  cell("Held", "num", (l) => (gone.has(l.id) ? "" : span(l.held_ms + sinceLocks()))),
  {
    label: "Waited",
    className: "num",
    fill: (td, l) => {
      setText(td, l.here ? took(l.waited_ms) : "elsewhere");
      td.title = l.here ? "" : "Another proxy granted it, or this one before it was started again; only that one knew how long it was waited for.";
    },
  },
  {
    label: "Left",
    className: "num",
    fill: (td, l) => {
      const left = l.remaining_ms - sinceLocks();
      setText(td, gone.has(l.id) ? "not held" : l.open ? "no end" : (left > 0 ? span(left + 999) : "0 s") + (l.session ? " ↻" : ""));
      td.title = l.open ? "It has no end: the proxies renew it." : l.session ? "This proxy renews it while its client is connected." : "";
    },
  },
  cell("Waiting", "num", (l) => count(l.waiters)),
  {
    label: "Votes",
    className: "num",
    fill: (td, l) => {
      setText(td, l.votes + "/" + l.of);
      setClass(td, l.votes < l.of ? "num warn" : "num");
    },
  },
  cell("Fence", "num fence", (l) => l.fence),
  textCell("Info", "text wide", (l) => l.info),
  {
    label: "",
    className: "act",
    make: (td, row) => {
      const button = element("button", "Release…", "danger");
      button.type = "button";
      button.addEventListener("click", () => askForce(row.data, released));
      td.append(element("span", undefined, "says"), button);
    },
    fill: (td, l) => {
      const note = notes.get(l.id);
      setText(td.firstChild, note ? note.text : "");
      const button = td.lastChild;
      button.hidden = !(state && state.force) || gone.has(l.id);
      button.setAttribute("aria-label", "Take the lock " + whole(l.name) + " away");
      td.classList.toggle("none", button.hidden && !note);
    },
  },
]);

const queuesTable = new Table("queues", [
  nameCell,
  cell("Waiting", "num", (q) => count(q.waiters)),
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
const sinceLocks = () => (locks ? performance.now() - locksAt + locks.age_ms : 0);

// grantedAt stays the same for a grant, although the durations of its events differ a little.
function grantedAt(l) {
  const key = l.id + " " + l.fence;
  if (!since.has(key)) since.set(key, Date.now() - l.held_ms - sinceLocks());
  return since.get(key);
}

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
  nodesTable.show(state.nodes, (n) => n.address);
  queuesTable.show(state.queues, (q) => q.id);
  const more = state.lines - state.queues.length;
  setText(byId("queues-note"), count(p.waiting) + " in " + count(state.lines) + (state.lines === 1 ? " queue" : " queues") + (more > 0 ? "; the longest are shown" : ""));
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

// showHealth sums it up in one sentence, which screen readers read when it changes.
function showHealth() {
  let kind = "good";
  let says = "Ready.";
  let title = "lockproxy";
  if (state) {
    const bad = state.health.filter((c) => !c.ok);
    const voting = state.nodes.filter((n) => n.votes).length;
    const of = " of " + state.nodes.length + " lock nodes vote, " + state.needed + " must agree.";
    if (voting < state.needed) {
      kind = "bad";
      says = "No quorum: " + voting + of + " No lock can be taken or renewed.";
    } else if (bad.length > 0) {
      kind = "bad";
      says = "Not ready: " + bad.map((c) => c.of + " " + c.says).join("; ") + ".";
    } else if (voting < state.nodes.length) {
      kind = "warn";
      says = "Ready, but " + voting + of + " Locks go on; " + (voting === state.needed ? "no other node may fail." : voting - state.needed + " more may fail.");
    } else {
      says = "Ready: all " + voting + " lock nodes vote, " + state.needed + " must agree.";
    }
    const list = byId("checks");
    while (list.children.length > state.health.length) list.lastChild.remove();
    state.health.forEach((c, i) => {
      const li = list.children[i] || list.appendChild(element("li"));
      setText(li, (c.ok ? "✓ " : "✗ ") + c.of + ": " + c.says);
      setClass(li, c.ok ? "" : "bad");
    });
  }
  if (lostAt) {
    kind = "bad";
    says = "Not live since " + clock.format(lostAt) + ". What is shown is as of then. Trying to reach the proxy again.";
  } else if (!state) {
    kind = "";
    says = "Connecting.";
  }
  if (kind === "bad") title = "✗ lockproxy";
  if (kind === "warn") title = "! lockproxy";
  const health = byId("health");
  setText(health, says);
  setClass(health, "status " + kind);
  if (document.title !== title) document.title = title;
  const live = byId("live");
  setText(live, lostAt ? "not live since " + clock.format(lostAt) : state ? "live" : "connecting");
  setClass(live, lostAt ? "lost" : "");
}

const inOrder = (a, b) => a.db - b.db || (a.name.text < b.name.text ? -1 : a.name.text > b.name.text ? 1 : a.id < b.id ? -1 : a.id > b.id ? 1 : 0);

// takeLocks takes who holds what. The row of a lock that is not held any more stays for a moment, so
// that rows do not jump under a finger.
function takeLocks(next) {
  const now = performance.now();
  if (!next.error) {
    const held = new Set(next.rows.map((l) => l.id));
    const sameFilter = locks && locks.filter === next.filter;
    if (sameFilter) {
      for (const l of locks.rows) if (!held.has(l.id) && !gone.has(l.id)) gone.set(l.id, { row: l, until: now + GONE_MS });
    } else {
      gone.clear();
    }
    for (const [id, g] of gone) {
      const note = notes.get(id);
      if (held.has(id) || (g.until < now && !note)) gone.delete(id);
    }
    locks = next;
    locksAt = now;
    const alive = new Set([...next.rows, ...[...gone.values()].map((g) => g.row)].map((l) => l.id + " " + l.fence));
    for (const key of since.keys()) if (!alive.has(key)) since.delete(key);
  } else if (locks) {
    locks = { ...locks, error: next.error };
  } else {
    locks = { ...next, rows: [], more: 0, complete: true };
    locksAt = now;
  }
}

function showLocks() {
  if (!locks) return;
  const rows = [...locks.rows, ...[...gone.values()].map((g) => g.row)].sort(inOrder);
  locksTable.show(rows, (l) => l.id);
  for (const row of locksTable.rows.values()) row.tr.classList.toggle("gone", gone.has(row.data.id));
  const error = byId("locks-error");
  error.hidden = !locks.error;
  setText(error, locks.error ? "Who holds what cannot be decided: " + locks.error + (rows.length ? ". Shown is what was." : ".") : "");
  setText(byId("locks-empty"), locks.error ? "" : locks.filter ? "No held lock has a name like this." : "Nobody holds a lock.");
  const more = byId("locks-more");
  more.hidden = locks.more === 0 && locks.complete;
  setText(more, locks.complete ? "and " + count(locks.more) + " more; filter to see them" : "and more than " + count(locks.more) + " more: there are too many to go through; filter to see some");
  showAge();
}

function showAge() {
  if (!locks) return;
  const age = sinceLocks();
  const old = performance.now() - locksAt + locks.seen_ms;
  const text = count(locks.rows.length) + (locks.more || !locks.complete ? " shown" : "") + ", as of " + (age < 1000 ? "now" : span(age) + " ago") + (old - age > 5000 ? "; names as of " + span(old) + " ago" : "") + (still ? ", held still" : "");
  setText(byId("locks-note"), text);
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
  });
  source.addEventListener("locks", (e) => {
    heard();
    const next = JSON.parse(e.data);
    if (still) {
      waitingLocks = next;
      return;
    }
    takeLocks(next);
    showLocks();
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
  const now = performance.now();
  for (const [id, note] of notes) if (note.until < now) notes.delete(id);
  if (state && !lostAt) showState();
  if (locks) {
    locksTable.refill();
    showAge();
  }
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

byId("still").addEventListener("click", () => {
  still = !still;
  byId("still").setAttribute("aria-pressed", String(still));
  if (!still && waitingLocks) {
    takeLocks(waitingLocks);
    waitingLocks = null;
    showLocks();
  }
  showAge();
});

// released notes on the page that a lock was released by force.
function released(l, says) {
  const now = performance.now();
  notes.set(l.id, { text: says + ", at " + clock.format(new Date()), until: now + NOTE_MS });
  gone.set(l.id, { row: l, until: now + NOTE_MS });
  if (locks) locks = { ...locks, rows: locks.rows.filter((row) => row.id !== l.id) };
  showLocks();
}

connect();
watchAdopt();
