"use strict";

// Everything that is shown is set as text, never as HTML. Times come as durations and are
// counted on from the moment they came, so that no two clocks need agree.

const byId = (id) => document.getElementById(id);
const numbers = new Intl.NumberFormat("en-US");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

const GONE_MS = 4000; // how long a lock that is not held any more stays
const NOTE_MS = 60000; // and what became of one that was taken away
const SILENT_MS = 4000; // without an event: what is shown is old
const STUCK_MS = 12000; // the connection is given up
const HIDDEN_MS = 60000; // nobody looks at this page any more

let state = null; // the last event of its kind, and when it came
let stateAt = 0;
let locks = null;
let locksAt = 0;
let still = false; // rows of locks are not to change
let waitingLocks = null; // what came meanwhile
let source = null;
let heardAt = performance.now();
let lostAt = null; // a Date, while what is shown is old
let retry = 0;
const gone = new Map(); // rows of locks that are not held any more, by id
const notes = new Map(); // what became of a FORCE, by id
const since = new Map(); // when a grant was made, by id and fence

// Small things.

function setText(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

function setClass(el, name) {
  if (el.className !== name) el.className = name;
}

function element(tag, text, className) {
  const el = document.createElement(tag);
  if (text !== undefined) el.textContent = text;
  if (className) el.className = className;
  return el;
}

function count(n) {
  return numbers.format(n);
}

function rate(n) {
  return n >= 100 ? count(Math.round(n)) : n >= 10 ? n.toFixed(0) : n >= 0.05 ? n.toFixed(1) : n > 0 ? "<0.1" : "0";
}

const two = (n) => String(n).padStart(2, "0");

// span is a time that goes on: in whole seconds.
function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + "m " + two(s % 60) + "s";
  if (s < 86400) return Math.floor(s / 3600) + "h " + two(Math.floor(s / 60) % 60) + "m";
  return Math.floor(s / 86400) + "d " + two(Math.floor(s / 3600) % 24) + "h";
}

// took is a time that is over.
function took(ms) {
  if (ms < 1) return "<1 ms";
  if (ms < 1000) return Math.round(ms) + " ms";
  return ms < 10000 ? (ms / 1000).toFixed(1) + " s" : span(ms);
}

function whole(text) {
  return text.text + (text.cut ? "…" : "");
}

// Tables. A row is kept as long as its key is, and only what changed in it is set.

class Table {
  constructor(id, columns) {
    this.body = byId(id);
    this.empty = byId(id + "-empty");
    this.columns = columns;
    this.rows = new Map();
  }

  show(all, key) {
    const seen = new Set();
    let at = this.body.firstElementChild;
    for (const data of all) {
      const k = key(data);
      seen.add(k);
      let row = this.rows.get(k);
      if (!row) {
        row = this.make();
        this.rows.set(k, row);
      }
      row.data = data;
      this.fill(row);
      if (row.tr === at) {
        at = at.nextElementSibling;
      } else {
        this.body.insertBefore(row.tr, at);
      }
    }
    for (const [k, row] of this.rows) {
      if (!seen.has(k)) {
        row.tr.remove();
        this.rows.delete(k);
      }
    }
    if (this.empty) this.empty.hidden = all.length > 0;
  }

  make() {
    const tr = element("tr");
    tr.setAttribute("role", "row");
    const row = { tr, data: null, cells: [] };
    for (const c of this.columns) {
      const td = element("td", undefined, c.className || "");
      td.setAttribute("role", "cell");
      td.dataset.label = c.label || "";
      if (c.make) c.make(td, row);
      tr.append(td);
      row.cells.push(td);
    }
    return row;
  }

  fill(row) {
    this.columns.forEach((c, i) => c.fill(row.cells[i], row.data));
  }

  refill() {
    for (const row of this.rows.values()) this.fill(row);
  }
}

const cell = (label, className, text) => ({ label, className, fill: (td, d) => setText(td, text(d)) });

// textCell shows what clients wrote.
const textCell = (label, className, get) => ({
  label,
  className,
  make: (td) => td.append(element("bdi")),
  fill: (td, d) => {
    const t = get(d);
    setText(td.firstChild, t ? whole(t) : "");
    td.classList.toggle("none", !t || t.text === "");
  },
});

// nameCell shows the name of a lock, and all about it when asked.
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

// refusals are what is the matter with a node that answers with these errors.
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

// stateSince is the same for a state each time, though each event says it a little differently.
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
      setText(td, gone.has(l.id) ? "not held" : (left > 0 ? span(left + 999) : "0 s") + (l.session ? " ↻" : ""));
      td.title = l.session ? "This proxy renews it while its client is connected." : "";
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
      button.addEventListener("click", () => askForce(row.data));
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

// grantedAt is the same for a grant each time, though each event says it a little differently.
function grantedAt(l) {
  const key = l.id + " " + l.fence;
  if (!since.has(key)) since.set(key, Date.now() - l.held_ms - sinceLocks());
  return since.get(key);
}

// What came.

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

// showHealth says it in one sentence, which is read out when it changes.
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

// takeLocks notes who holds what. Who no longer holds anything stays for a moment, so that
// rows do not jump under a finger.
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

// One lock.

const detail = byId("detail");
byId("detail-close").addEventListener("click", () => detail.close());

function facts(list, pairs) {
  list.replaceChildren();
  for (const [name, value] of pairs) {
    const dd = element("dd");
    dd.append(element("bdi", value));
    list.append(element("dt", name), dd);
  }
}

async function showDetail(id) {
  facts(byId("detail-facts"), [["", "asking the nodes"]]);
  byId("detail-nodes").replaceChildren();
  byId("detail-waiters").replaceChildren();
  setText(byId("detail-waiting"), "");
  byId("detail-error").hidden = true;
  detail.showModal();
  try {
    const answer = await fetch("page/lock?id=" + encodeURIComponent(id));
    if (!answer.ok) throw new Error(await answer.text());
    fillDetail(await answer.json());
  } catch (e) {
    facts(byId("detail-facts"), []);
    byId("detail-error").hidden = false;
    setText(byId("detail-error"), e.message);
  }
}

function fillDetail(d) {
  const pairs = [["Name", d.name], ["Database", String(d.db)]];
  if (d.held) pairs.push(["Owner", d.owner], ["Fence", d.fence], ["Info", d.info || "none"]);
  else pairs.push(["", d.error ? "whether it is held cannot be decided" : "nobody holds it"]);
  if (d.holds.length > 1) pairs.push(["Holds", d.holds.map((h) => "taken " + span(h.taken_ms) + " ago, " + span(h.left_ms + 999) + " left").join("; ")]);
  facts(byId("detail-facts"), pairs);
  for (const n of d.nodes) {
    const li = element("li", n.address + ": " + n.says);
    if (n.owner) li.append(", by ", element("bdi", n.owner), ", fence " + n.fence + ", " + span(n.remaining_ms + 999) + " left");
    byId("detail-nodes").append(li);
  }
  for (const w of d.waiters) {
    const li = element("li");
    li.append(element("bdi", whole(w.owner)), " for " + span(w.waiting_ms) + ", gives up in " + span(w.left_ms + 999));
    if (w.client.text) li.append(", at ", element("bdi", whole(w.client)));
    if (w.info.text) li.append(", info: ", element("bdi", whole(w.info)));
    byId("detail-waiters").append(li);
  }
  setText(byId("detail-waiting"), d.waiting === 0 ? "nobody" : d.waiting > d.waiters.length ? "the first " + d.waiters.length + " of " + count(d.waiting) : "");
  byId("detail-error").hidden = !d.error;
  setText(byId("detail-error"), d.error);
}

// Taking a lock away: the grant that was on the page when the dialog was opened.

const force = byId("force");
const typed = byId("force-typed");
let victim = null;

function askForce(l) {
  victim = l;
  setText(byId("force-name"), l.name.text);
  setText(byId("force-owner"), whole(l.owner));
  setText(byId("force-fence"), l.fence);
  typed.value = "";
  byId("force-do").disabled = true;
  byId("force-says").hidden = true;
  force.showModal();
  typed.focus();
}

typed.addEventListener("input", () => {
  byId("force-do").disabled = typed.value !== victim.name.text;
});
typed.addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !byId("force-do").disabled) takeAway();
});
byId("force-cancel").addEventListener("click", () => force.close());
byId("force-do").addEventListener("click", takeAway);

async function takeAway() {
  const l = victim;
  const says = byId("force-says");
  byId("force-do").disabled = true;
  let answer;
  try {
    const reply = await fetch("page/force", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ id: l.id, fence: l.fence, typed: typed.value }),
    });
    const text = await reply.text();
    try {
      answer = JSON.parse(text);
    } catch {
      answer = { done: false, says: text };
    }
  } catch (e) {
    answer = { done: false, says: "The proxy was not reached; whether the lock was taken away is not known. " + e.message };
  }
  if (!answer.done) {
    says.hidden = false;
    setClass(says, "status bad");
    setText(says, answer.says);
    return;
  }
  const now = performance.now();
  notes.set(l.id, { text: answer.says + ", at " + clock.format(new Date()), until: now + NOTE_MS });
  gone.set(l.id, { row: l, until: now + NOTE_MS });
  if (locks) locks = { ...locks, rows: locks.rows.filter((row) => row.id !== l.id) };
  showLocks();
  force.close();
}

connect();
