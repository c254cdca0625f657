// The dialog with all about one lock.

import { byId, element, setText } from "./dom.js";
import { clock, count, span, whole } from "./format.js";
import { showTimeline } from "./timeline.js";

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

export async function showDetail(id) {
  facts(byId("detail-facts"), [["", "asking the nodes"]]);
  byId("detail-nodes").replaceChildren();
  byId("detail-waiters").replaceChildren();
  byId("detail-readers").replaceChildren();
  byId("detail-read").hidden = true;
  setText(byId("detail-waiting"), "");
  byId("detail-timeline").replaceChildren();
  byId("detail-axis-figure").hidden = true;
  setText(byId("detail-why"), "");
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
  if (d.held) pairs.push([d.adopted === "hash" ? "Field" : d.adopted ? "Value" : "Owner", d.owner || '""'], ["Client", d.client || "not known to this proxy"], ["Since", clock.format(Date.now() - d.held_ms)], ["Fence", d.fence], ["Info", d.info || "none"]);
  else pairs.push(["", d.error ? "whether it is held cannot be decided" : d.reading > 0 ? "it is shared, by readers or holders of permits; nobody may have it for itself" : "nobody holds it"]);
  if (d.holds.length > 0) pairs.push(["Holds", d.holds.map((h) => "taken " + span(h.taken_ms) + " ago, " + span(h.left_ms + 999) + " left").join("; ")]);
  facts(byId("detail-facts"), pairs);
  showTimeline(d);
  for (const n of d.nodes) {
    const li = element("li", n.address + ": " + n.says);
    if (n.owner || n.adopted) li.append(", by ", element("bdi", n.owner || '""'), ", fence " + n.fence + ", " + span(n.remaining_ms + 999) + " left");
    byId("detail-nodes").append(li);
  }
  for (const r of d.readers) {
    const li = element("li");
    li.append(element("bdi", whole(r.owner)), " for " + span(r.left_ms + 999) + " at most");
    byId("detail-readers").append(li);
  }
  byId("detail-read").hidden = d.reading === 0;
  setText(byId("detail-reading"), d.reading > d.readers.length ? "the last " + d.readers.length + " of " + count(d.reading) : "");
  for (const w of d.waiters) {
    const li = element("li");
    li.append(element("bdi", whole(w.owner)), (w.permits ? " with PERMITS " + count(w.permits) + ", for " : w.shared ? " to read, for " : " for ") + span(w.waiting_ms) + ", gives up in " + span(w.left_ms + 999));
    if (w.client.text) li.append(", at ", element("bdi", whole(w.client)));
    if (w.info.text) li.append(", info: ", element("bdi", whole(w.info)));
    byId("detail-waiters").append(li);
  }
  setText(byId("detail-waiting"), d.waiting === 0 ? "nobody" : d.waiting > d.waiters.length ? "the first " + d.waiters.length + " of " + count(d.waiting) : "");
  setText(byId("detail-why"), d.why.join("\n"));
  byId("detail-error").hidden = !d.error;
  setText(byId("detail-error"), d.error);
}
