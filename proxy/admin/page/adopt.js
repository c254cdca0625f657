// The keys that are used as locks, as the proxy has seen.

import { byId, cell, element, setClass, setText, Table } from "./dom.js";
import { count, rate, took } from "./format.js";

const EVERY_MS = 3000;
const MOST = 200; // rows

const range = (t) => (t.max_ms === 0 ? (t.endless > 0 ? "none" : "–") : t.min_ms === t.max_ms ? took(t.max_ms) : took(t.min_ms) + " – " + took(t.max_ms));

const table = new Table("adopt", [
  {
    label: "Keys",
    className: "text head",
    make: (td) => td.append(element("span", undefined, "db"), element("bdi")),
    fill: (td, r) => {
      setText(td.children[0], r.db ? "db " + r.db : "");
      setText(td.children[1], r.keys);
      td.title = "for example " + r.example + (r.pattern ? "; pattern " + r.pattern + ", mode " + r.mode : "");
    },
  },
  cell("Idiom", "text wide", (r) => r.idiom),
  {
    label: "Looks like",
    className: "text",
    make: (td) => td.append(element("bdi")),
    fill: (td, r) => {
      setText(td.firstChild, r.looks_like);
      td.classList.toggle("none", r.looks_like === "");
    },
  },
  cell("Clients", "num", (r) => count(r.clients)),
  cell("Acquired/s", "num", (r) => rate(r.acquired_per_s)),
  cell("Held p50/p99/max", "num", (r) => (r.held.count ? took(r.held.p50_ms) + " / " + took(r.held.p99_ms) + " / " + took(r.held.max_ms) : "–")),
  cell("TTL", "num", (r) => range(r.ttl)),
  {
    label: "Would be",
    className: "wide",
    make: (td) => td.append(element("span"), element("div", undefined, "note")),
    fill: (td, r) => {
      const says = r.would_be || "not known";
      const word = td.firstChild;
      setText(word, (r.mode === "on" ? "is " : "") + says + (says === "partly refused" ? ", " + count(r.calls_refused) + " of " + count(r.calls_refused + r.calls_adopted) : ""));
      setClass(word, says === "adopted" ? "good" : says === "not known" ? "" : "warn");
      setText(td.lastChild, r.why);
    },
  },
  {
    label: "Hazards",
    className: "wide",
    fill: (td, r) => {
      td.classList.toggle("none", r.hazards.length === 0);
      while (td.children.length > r.hazards.length) td.lastChild.remove();
      r.hazards.forEach((h, i) => {
        let one = td.children[i];
        if (!one) {
          one = element("details", undefined, "hazard");
          one.append(element("summary"), element("p"));
          td.append(one);
        }
        setText(one.firstChild, h.name + " (" + count(h.count) + ")");
        setText(one.lastChild, h.means + " For example " + h.key + ".");
        one.title = h.means;
      });
    },
  },
]);

function show(r) {
  table.show(r.rows.slice(0, MOST), (row) => row.db + " " + row.script + " " + row.keys);
  const more = r.rows.length - MOST;
  const unseen = r.unseen.in_multi + r.unseen.passthrough;
  const notes = [
    r.on ? (r.all ? "in all traffic" : "keys of patterns") + ", since this proxy started" : "",
    more > 0 ? count(more) + " more rows: see lockproxy adopt report" : "",
    unseen > 0 ? count(unseen) + " commands not seen through" : "",
    r.keyevents > 0 ? count(r.keyevents) + " subscriptions to key events" : "",
    r.full ? "so many keys that the oldest are forgotten" : "",
  ];
  setText(byId("adopt-note"), notes.filter((n) => n).join("; "));
  setText(byId("adopt-empty"), r.on ? "Nothing that looks like a lock has come by." : "Nothing is watched. Start the proxy with --adopt-report to look at all traffic, or name keys with --adopt 'PATTERN mode=observe'. Neither changes anything.");
}

// watchAdopt shows the report from now on, while the page is seen.
export async function watchAdopt() {
  let on = true;
  if (!document.hidden) {
    try {
      const answer = await fetch("page/adopt");
      if (answer.ok) {
        const r = await answer.json();
        show(r);
        on = r.on;
      }
    } catch {
      // The page says that it is not live.
    }
  }
  setTimeout(watchAdopt, on ? EVERY_MS : 10 * EVERY_MS); // a proxy that is started again may have the setting
}
