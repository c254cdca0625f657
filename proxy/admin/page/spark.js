// Small drawings, as SVG. Each has words for those who do not see it.

import { byId } from "./dom.js";

const SPACE = byId("quorum").namespaceURI;
const HEIGHT = 24;

// shape is an element of a drawing. Only numbers, states of nodes and names of ours become its attributes.
export function shape(name, attributes, className) {
  const el = document.createElementNS(SPACE, name);
  set(el, attributes || {});
  if (className) el.setAttribute("class", className);
  return el;
}

export function set(el, attributes) {
  for (const [key, value] of Object.entries(attributes)) if (el.getAttribute(key) !== String(value)) el.setAttribute(key, value);
}

// say sets the words for a drawing.
export const say = (svg, words) => set(svg, { role: "img", "aria-label": words });

// spark makes an empty line of values.
export const spark = () => shape("svg", { preserveAspectRatio: "none", "aria-hidden": "true" }, "drawn spark");

// drawSpark draws series of most values, the newest at the right, on one scale from 0 on. Negative ones are left out.
export function drawSpark(svg, most, series, words) {
  svg.removeAttribute("aria-hidden");
  say(svg, words);
  set(svg, { viewBox: "0 0 " + most + " " + HEIGHT });
  const top = Math.max(0, ...series.flatMap((s) => s.values)) || 1;
  while (svg.children.length > series.length) svg.lastChild.remove();
  series.forEach((s, i) => {
    const path = svg.children[i] || svg.appendChild(shape("path"));
    let d = "";
    let pen = "M";
    s.values.forEach((v, j) => {
      if (v < 0) {
        pen = "M";
        return;
      }
      const x = most - s.values.length + j + 0.5;
      d += pen + x + " " + (HEIGHT - 1.5 - (v / top) * (HEIGHT - 3)).toFixed(1) + (pen === "M" ? "h0" : "");
      pen = "L";
    });
    set(path, { d, class: s.className || "" });
  });
}

// drawQuorum draws the lock nodes in a ring: those that vote are joined to its middle, of a quarantine the ring of the node
// shows what is left, and one that is silent is crossed out.
export function drawQuorum(nodes, needed, words) {
  const svg = byId("quorum");
  say(svg, words);
  const r = Math.min(12, 52 * Math.sin(Math.PI / Math.max(nodes.length, 2)) * 0.8);
  while (svg.children.length > nodes.length + 1) svg.lastChild.remove();
  if (svg.children.length === 0) {
    const middle = svg.appendChild(shape("text", { x: 110, y: 70 }, "middle"));
    middle.append(shape("tspan", { x: 110 }, "large"), shape("tspan", { x: 110, dy: 14 }));
  }
  const voting = nodes.filter((n) => n.votes).length;
  const [large, small] = svg.firstChild.children;
  large.textContent = voting + " of " + nodes.length;
  small.textContent = needed + " needed";
  svg.firstChild.setAttribute("class", "middle " + (voting < needed ? "bad" : voting < nodes.length ? "warn" : "good"));
  nodes.forEach((n, i) => {
    const turn = (2 * Math.PI * i) / nodes.length - Math.PI / 2;
    const [x, y] = [110 + 58 * Math.cos(turn), 72 + 56 * Math.sin(turn)];
    let g = svg.children[i + 1];
    if (!g) {
      g = svg.appendChild(shape("g"));
      g.append(shape("line"), shape("circle"), shape("circle", {}, "left"), shape("path"), shape("text"));
    }
    const [line, disc, left, cross, number] = g.children;
    g.setAttribute("class", n.votes ? "good" : n.state === "quarantine" ? "warn" : "bad");
    set(line, { x1: x - (x - 110) * 0.24, y1: y - (y - 72) * 0.24, x2: x - (x - 110) * 0.4, y2: y - (y - 72) * 0.4 });
    for (const c of [disc, left]) set(c, { cx: x, cy: y, r });
    set(left, { pathLength: 1, "stroke-dasharray": n.part + " 1", transform: "rotate(-90 " + x + " " + y + ")" });
    const d = r * 0.7;
    set(cross, { d: "M" + (x - d) + " " + (y - d) + "l" + 2 * d + " " + 2 * d });
    set(number, { x, y: y + 4 });
    number.textContent = i + 1;
  });
}

// bar makes a bar; drawBar sets its part of the whole width. What it says stands beside it as a number.
export function bar() {
  const svg = shape("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, "drawn bar");
  svg.append(shape("rect", { height: 10 }));
  return svg;
}

export const drawBar = (svg, part) => set(svg.firstChild, { width: Math.max(1, 100 * part) });
