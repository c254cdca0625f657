// What this proxy saw happen to one lock: who had it and who waited along an axis of time, and the same in words.

import { byId, element, setText } from "./dom.js";
import { clock, count, span, took, whole } from "./format.js";
import { say, set, shape } from "./spark.js";

// marks are what a happening is called, and the kind of its mark; what another proxy did is not among them.
const marks = {
  granted: (h) => [h.shared ? (h.holds > 1 ? "shares it " + h.holds + " times" : "shares it") : h.holds > 1 ? "held " + h.holds + " times" : h.handed ? "handed over" : "granted", "good"],
  refused: (h) => [h.times > 1 ? "refused " + (h.shared ? "a share " : "") + count(h.times) + " times, last" : h.shared ? "refused a share" : "refused", "quiet"],
  "given back": (h) => [h.holds > 0 ? "gave one back, " + h.holds + " left" : h.shared ? "shares it no more" : "given back", "quiet"],
  left: (h) => [(h.shared ? "shares it no more" : "given back") + ": its connection ended", "quiet"],
  forced: (h) => [h.shared ? "share taken away by an operator" : "taken away by an operator", "bad"],
  lost: (h) => [h.shared ? "share lost" : "lost", "bad"],
};

const ends = (h) => ["left", "forced", "lost"].includes(h.kind) || (h.kind === "given back" && h.holds === 0);

// ofOne is what happened to the lock of one owner for itself, which the axis shows: those who share it are many at a time.
const ofOne = (d) => d.timeline.filter((h) => !h.shared);

// holdings are the times in which somebody had the lock, the oldest first, in ms ago. The end of one that nothing was heard of is the
// next grant, or what was heard last.
function holdings(d) {
  const all = [];
  let open = null;
  for (const h of ofOne(d)) {
    if (h.kind === "granted" && !(open && open.fence === h.fence)) {
      if (open) open.to = h.ago_ms;
      open = { owner: whole(h.owner), fence: h.fence, from: h.ago_ms, to: d.timeline.at(-1).ago_ms, asked: h.ago_ms + h.waited_ms };
      all.push(open);
    } else if (open && ends(h)) {
      open.to = h.ago_ms;
      open = null;
    }
  }
  if (d.held && open && open.fence === d.fence) open.to = 0;
  else if (d.held) all.push({ owner: d.owner, fence: d.fence, from: d.held_ms, to: 0, asked: d.held_ms });
  return all;
}

const WIDTH = 1000; // of the drawing

function drawAxis(d) {
  const svg = byId("detail-axis");
  svg.replaceChildren();
  const seen = ofOne(d);
  const all = holdings(d);
  const from = Math.max(0, ...all.map((one) => one.asked), ...seen.map((h) => h.ago_ms));
  byId("detail-axis-figure").hidden = from === 0;
  if (from === 0) return;
  const x = (ago) => WIDTH * (1 - ago / from);
  const box = (attributes, className, words) => {
    const rect = svg.appendChild(shape("rect", attributes, className));
    rect.appendChild(shape("title")).textContent = words;
  };
  all.forEach((one, i) => {
    const has = (one.owner || '""') + " has it for " + took(one.from - one.to) + ", fence " + one.fence;
    box({ x: x(one.from), y: 8, width: Math.max(2, x(one.to) - x(one.from)), height: 16 }, i % 2 ? "holds odd" : "holds", has);
    const waited = x(one.from) - x(one.asked);
    if (waited >= 2) box({ x: x(one.asked), y: 27, width: waited, height: 4 }, "waits", (one.owner || '""') + " waits for " + took(one.asked - one.from));
  });
  for (const h of seen) {
    const [word, kind] = marks[h.kind](h);
    if (kind === "bad") box({ x: Math.min(x(h.ago_ms), WIDTH - 4) - 2, y: 2, width: 4, height: 28 }, "bad", word);
    else if (h.kind === "refused") box({ x: Math.min(x(h.ago_ms), WIDTH - 3) - 1, y: 2, width: 3, height: 4 }, "quiet", word);
  }
  set(svg, { viewBox: "0 0 " + WIDTH + " 32" });
  svg.removeAttribute("aria-hidden");
  const bad = seen.filter((h) => marks[h.kind](h)[1] === "bad").length;
  say(svg, "Who had it in the last " + span(from) + ": " + count(all.length) + " in turn, " + count(bad) + " lost or taken away. The list below says it in words.");
  setText(byId("detail-axis-from"), clock.format(Date.now() - from));
}

// showTimeline draws the axis, and lists what this proxy saw, the newest first. Each item says by words what its mark says by colour.
export function showTimeline(d) {
  drawAxis(d);
  const items = d.timeline.toReversed().map((h) => {
    const [word, kind] = marks[h.kind](h);
    const li = element("li", undefined, kind);
    li.append(element("time", clock.format(Date.now() - h.ago_ms)), " ", element("b", word), " ", element("bdi", whole(h.owner) || '""'));
    if (h.waited_ms >= 1) li.append(", waited " + took(h.waited_ms));
    if (h.fence) li.append(", fence " + h.fence);
    if (h.client.text) li.append(", at ", element("bdi", whole(h.client)));
    if (h.says) li.append(", " + h.says);
    return li;
  });
  byId("detail-timeline").replaceChildren(...items);
}
