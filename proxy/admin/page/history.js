// The last quarter of an hour, as the proxy has it.

import { byId, element, setText } from "./dom.js";
import { rate, took } from "./format.js";
import { drawSpark, spark } from "./spark.js";

let last = null;

const times = (ms) => (ms < 0 ? "none" : ms < 10 ? ms.toFixed(2) + " ms" : took(ms));

// words describe series for those who do not see them.
function words(what, minutes, parts) {
  const each = parts.map(([name, values, format]) => {
    const some = values.filter((v) => v >= 0);
    return name + (some.length === 0 ? "none yet" : "now " + format(values.at(-1)) + ", highest " + format(Math.max(...some)));
  });
  return what + " in the last " + minutes + " minutes: " + each.join("; ") + ".";
}

const minutesOf = (h) => Math.round((h.most * h.every_ms) / 60000);

const drawn = new Map(); // what is drawn of the proxy itself, by its name
function draw(h, name, values, format) {
  let d = drawn.get(name);
  if (!d) {
    const figure = element("figure");
    const caption = element("figcaption", name + " ");
    d = { svg: spark(), now: element("b"), most: element("span", undefined, "note") };
    caption.append(d.now, " ", d.most);
    figure.append(caption, d.svg);
    byId("history").append(figure);
    drawn.set(name, d);
  }
  const some = values.filter((v) => v >= 0);
  setText(d.now, values.length ? format(values.at(-1)) : "–");
  setText(d.most, some.length ? "highest " + format(Math.max(...some)) : "");
  drawSpark(d.svg, h.most, [{ values }], words(name, minutesOf(h), [["", values, format]]));
}

// drawNode draws a node's answers and its votes, once for each history that came.
export function drawNode(answers, votes, address) {
  const n = last && last.nodes.find((one) => one.address === address);
  if (!n || answers.drawnFrom === last) return;
  answers.drawnFrom = last;
  const m = minutesOf(last);
  drawSpark(answers, last.most, [{ values: n.answer_p99_ms }], words("Times of answers of " + address + ", 99 of 100,", m, [["", n.answer_p99_ms, times]]));
  const none = n.none_per_s;
  drawSpark(votes, last.most, [{ values: n.yes_per_s, className: "good" }, { values: n.no_per_s, className: "quiet" }, { values: none, className: "bad" }],
    words("Votes per second of " + address, m, [["yes ", n.yes_per_s, rate], ["no ", n.no_per_s, rate], ["none ", none, rate]]));
}

// showHistory draws a history, and returns how long it is until there is more.
export function showHistory(h) {
  last = h;
  draw(last, "granted per s", last.grants_per_s, rate);
  draw(last, "refused per s", last.refusals_per_s, rate);
  draw(last, "wait for a grant, 99 of 100", last.wait_p99_ms, times);
  return Math.max(1000, h.every_ms - h.age_ms + 500);
}

// watchHistory keeps it up to date while the page is seen.
export async function watchHistory() {
  let next = 2000;
  if (!document.hidden) {
    try {
      const answer = await fetch("page/history");
      if (answer.ok) {
        next = showHistory(await answer.json());
      }
    } catch {
      // The page says that it is not live.
    }
  }
  setTimeout(watchHistory, next);
}
