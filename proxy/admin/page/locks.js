// Held locks: the table, its order, and what is looked for in it.

import { showDetail } from "./detail.js";
import { byId, cell, element, setClass, setText, Table, textCell } from "./dom.js";
import { askForce } from "./force.js";
import { clock, count, sharedBy, span, took, whole } from "./format.js";

const GONE_MS = 4000; // for which the row of a lock that is not held any more stays
const NOTE_MS = 60000; // the same, with a note, of one that was taken away
const MOST_GONE = 500; // rows of such locks
const TOUCHED_MS = 3000; // after a touch or a scroll, in which rows keep their places

let locks = null; // the last event, and when it came
let locksAt = 0;
let paused = false; // the rows are frozen
let waitingLocks = null; // the last event meanwhile
let mayForce = false;
let order = "name";
let placed = []; // the ids of the rows, from the first to the last
let pointed = false; // a mouse is on the rows
let touchedAt = -TOUCHED_MS;
const gone = new Map(); // rows of locks that are not held any more, by id
const notes = new Map(); // outcomes of FORCE, by id
const since = new Map(); // when a grant was made, by id and fence

// nameCell is the name of a lock, and opens its dialog.
export const nameCell = {
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

const table = new Table("locks", [
  nameCell,
  {
    label: "Owner",
    className: "text wide",
    make: (td) => td.append(element("bdi"), element("span", undefined, "reads")),
    fill: (td, l) => {
      setText(td.children[0], whole(l.owner));
      setText(td.children[1], l.readers ? (l.read ? "" : ", ") + sharedBy(l.readers) : "");
      td.classList.toggle("none", td.textContent === "");
    },
  },
  cell("Since", "since", (l) => (l.read ? "" : clock.format(grantedAt(l)))),
  cell("Held", "num", (l) => (gone.has(l.id) || l.read ? "" : span(l.held_ms + sinceLocks()))),
  {
    label: "Waited",
    className: "num",
    fill: (td, l) => {
      setText(td, l.read ? "" : l.here ? took(l.waited_ms) : "elsewhere");
      td.title = l.read || l.here ? "" : "Another proxy granted it, or this one before it was started again; only that one knew how long it was waited for.";
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
      setText(td, l.read ? "" : l.votes + "/" + l.of);
      setClass(td, !l.read && l.votes < l.of ? "num warn" : "num");
    },
  },
  cell("Fence", "num fence", (l) => (l.read ? "" : l.fence)),
  textCell("Info", "text wide", (l) => l.info),
  {
    label: "",
    className: "act",
    make: (td, row) => {
      const button = element("button", "Take away…", "danger");
      button.type = "button";
      button.addEventListener("click", () => askForce(row.data, takenAway));
      td.append(element("span", undefined, "says"), button);
    },
    fill: (td, l) => {
      const note = notes.get(l.id);
      setText(td.firstChild, note ? note.text : "");
      const button = td.lastChild;
      button.hidden = !mayForce || gone.has(l.id);
      button.setAttribute("aria-label", "Take the lock " + whole(l.name) + " away");
      td.classList.toggle("none", button.hidden && !note);
    },
  },
]);

const sinceLocks = () => (locks ? performance.now() - locksAt + locks.age_ms : 0);

// grantedAt stays the same for a grant, although the durations of its events differ a little.
function grantedAt(l) {
  const key = l.id + " " + l.fence;
  if (!since.has(key)) since.set(key, Date.now() - l.held_ms - sinceLocks());
  return since.get(key);
}

// Order.

const byName = (a, b) => a.db - b.db || (a.name.text < b.name.text ? -1 : a.name.text > b.name.text ? 1 : a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
const leftOf = (l) => (l.open ? Number.MAX_SAFE_INTEGER : l.remaining_ms);
const orders = { // what is looked for comes first
  name: byName,
  held: (a, b) => grantedAt(a) - grantedAt(b),
  waiting: (a, b) => b.waiters - a.waiters,
  left: (a, b) => leftOf(a) - leftOf(b),
};
const inOrder = (a, b) => orders[order](a, b) || byName(a, b);

// isTouched is whether somebody reads the rows or is about to press a button in them: they keep their places then.
function isTouched() {
  return pointed || table.body.querySelector(":focus-visible") !== null || performance.now() - touchedAt < TOUCHED_MS;
}

// place puts rows in order; while somebody is at them each stays where it is, and new ones come last.
function place(rows) {
  const sorted = rows.toSorted(inOrder);
  if (!isTouched()) return sorted;
  const at = new Map(placed.map((id, i) => [id, i]));
  const placeOf = (l) => at.get(l.id) ?? placed.length;
  return sorted.sort((a, b) => placeOf(a) - placeOf(b));
}

export function setOrder(next) {
  order = next;
  placed = [];
  touchedAt = -TOUCHED_MS;
  byId("sort").value = order;
  for (const th of document.querySelectorAll("th[data-sort]")) {
    if (th.dataset.sort === order) th.setAttribute("aria-sort", order === "name" || order === "left" ? "ascending" : "descending");
    else th.removeAttribute("aria-sort");
  }
  showLocks();
}

byId("sort").addEventListener("change", () => setOrder(byId("sort").value));
for (const th of document.querySelectorAll("th[data-sort]")) th.addEventListener("click", () => setOrder(th.dataset.sort));
byId("owner").addEventListener("input", () => showLocks());
table.body.addEventListener("pointerover", (e) => { pointed = e.pointerType === "mouse"; });
table.body.addEventListener("pointerleave", () => { pointed = false; });
for (const event of ["touchstart", "touchmove"]) table.body.addEventListener(event, () => { touchedAt = performance.now(); }, { passive: true });

// Events.

// takeLocks takes who holds what, and shows it. The row of a lock that is not held any more stays for a moment, and
// for as long as somebody is at the rows, so that they do not jump under a finger.
export function takeLocks(next) {
  if (paused) {
    waitingLocks = next;
    return;
  }
  const now = performance.now();
  if (!next.error) {
    const held = new Set(next.rows.map((l) => l.id));
    const sameFilter = locks && locks.filter === next.filter;
    if (sameFilter) {
      for (const l of locks.rows) if (!held.has(l.id) && !gone.has(l.id)) gone.set(l.id, { row: l, until: now + GONE_MS });
    } else {
      gone.clear();
    }
    const touched = isTouched();
    for (const [id, g] of gone) {
      const stays = notes.has(id) || (touched && gone.size <= MOST_GONE);
      if (held.has(id) || (g.until < now && !stays)) gone.delete(id);
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
  showLocks();
}

// looksLike is whether the owner or the info of a row has what is looked for in them.
function looksLike(l) {
  const wanted = byId("owner").value.toLowerCase();
  return wanted === "" || l.owner.text.toLowerCase().includes(wanted) || l.info.text.toLowerCase().includes(wanted);
}

function showLocks() {
  if (!locks) return;
  const rows = place([...locks.rows, ...[...gone.values()].map((g) => g.row)].filter(looksLike));
  placed = rows.map((l) => l.id);
  table.show(rows, (l) => l.id);
  for (const row of table.rows.values()) row.tr.classList.toggle("gone", gone.has(row.data.id));
  const error = byId("locks-error");
  error.hidden = !locks.error;
  setText(error, locks.error ? "Who holds what cannot be decided: " + locks.error + (rows.length ? ". Below is what was last known." : ".") : "");
  const wanted = locks.rows.length > 0 || locks.filter;
  setText(byId("locks-empty"), locks.error ? "" : wanted ? "No held lock that is shown is like this." : "Nobody holds a lock.");
  const more = byId("locks-more");
  more.hidden = locks.more === 0 && locks.complete;
  const others = locks.complete ? "and " + count(locks.more) + " more; filter to see them. " : "and more than " + count(locks.more) + " more: there are too many to go through; filter to see some. ";
  setText(more, others + "Only those that are shown are put in order, and looked through for owners; among them are all that somebody waits for at this proxy.");
  showAge();
}

function showAge() {
  if (!locks) return;
  const age = sinceLocks();
  const old = performance.now() - locksAt + locks.seen_ms;
  const shown = placed.filter((id) => !gone.has(id)).length;
  const of = locks.more || !locks.complete ? (locks.complete ? "" : "more than ") + count(locks.names) + " names" : shown < locks.rows.length ? count(locks.rows.length) : "";
  const never = locks.error && !locks.seen_ms && placed.length === 0;
  const known = count(shown) + (of ? " of " + of : "") + ", as of " + (age < 1000 ? "now" : span(age) + " ago") + (old - age > 5000 ? "; names as of " + span(old) + " ago" : "");
  const text = (never ? "unknown" : known) + (paused ? ", paused" : "");
  setText(byId("locks-note"), text);
}

// tick has times go on. force is whether locks may be taken away here.
export function tick(force) {
  mayForce = force;
  const now = performance.now();
  for (const [id, note] of notes) if (note.until < now) notes.delete(id);
  if (!locks) return;
  table.refill();
  showAge();
}

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  if (!paused && waitingLocks) {
    const last = waitingLocks;
    waitingLocks = null;
    takeLocks(last);
  }
  showAge();
});

// takenAway notes on the page that a lock was taken away.
function takenAway(l, says) {
  const now = performance.now();
  notes.set(l.id, { text: says + ", at " + clock.format(new Date()), until: now + NOTE_MS });
  gone.set(l.id, { row: l, until: now + NOTE_MS });
  if (locks) locks = { ...locks, rows: locks.rows.filter((row) => row.id !== l.id) };
  showLocks();
}
