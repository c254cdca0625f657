// The dialog that takes a lock away: the grant that was on the page when it was opened, or what owners read.

import { byId, setClass, setText } from "./dom.js";
import { sharedBy, whole } from "./format.js";

const force = byId("force");
const typed = byId("force-typed");
let shown = null; // the row that the dialog is about
let onTaken = null;

// askForce opens the dialog for a row. taken is called with the row and the proxy's words.
export function askForce(l, taken) {
  shown = l;
  onTaken = taken;
  setText(byId("force-name"), l.name.text);
  setText(byId("force-owner"), l.read ? sharedBy(l.readers) + ", and whoever shares it by then" : whole(l.owner));
  setText(byId("force-fence"), l.read ? "whatever each has" : l.fence);
  setText(byId("force-stops"), l.read ? "This does not stop those who share it. They go on with their work, and believe that they have the lock until they ask again." : "This does not stop the owner. It goes on with its work, and believes that it has the lock until it asks again.");
  typed.value = "";
  byId("force-do").disabled = true;
  byId("force-says").hidden = true;
  force.showModal();
  typed.focus();
}

typed.addEventListener("input", () => {
  byId("force-do").disabled = typed.value !== shown.name.text;
});
typed.addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !byId("force-do").disabled) takeAway();
});
byId("force-cancel").addEventListener("click", () => force.close());
byId("force-do").addEventListener("click", takeAway);

async function takeAway() {
  const l = shown;
  const says = byId("force-says");
  byId("force-do").disabled = true;
  let answer;
  try {
    const reply = await fetch("page/force", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ id: l.id, fence: l.fence, readers: Boolean(l.read), typed: typed.value }),
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
  onTaken(l, answer.says);
  force.close();
}
