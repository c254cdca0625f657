// Elements and tables. Everything is set as text, never as HTML.

import { whole } from "./format.js";

export const byId = (id) => document.getElementById(id);

export function setText(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

export function setClass(el, name) {
  if (el.className !== name) el.className = name;
}

export function element(tag, text, className) {
  const el = document.createElement(tag);
  if (text !== undefined) el.textContent = text;
  if (className) el.className = className;
  return el;
}

// A Table keeps a row as long as its key is shown, and sets only what changed in it: focus, selection
// and a button that is being pressed stay.
export class Table {
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

export const cell = (label, className, text) => ({ label, className, fill: (td, d) => setText(td, text(d)) });

// textCell is a text of clients.
export const textCell = (label, className, get) => ({
  label,
  className,
  make: (td) => td.append(element("bdi")),
  fill: (td, d) => {
    const t = get(d);
    setText(td.firstChild, t ? whole(t) : "");
    td.classList.toggle("none", !t || t.text === "");
  },
});
