// Numbers and times as people read them.

const numbers = new Intl.NumberFormat("en-US");
const two = (n) => String(n).padStart(2, "0");

export const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export function count(n) {
  return numbers.format(n);
}

export const sharedBy = (n) => "shared by " + count(n);

export function rate(n) {
  return n >= 100 ? count(Math.round(n)) : n >= 10 ? n.toFixed(0) : n >= 0.05 ? n.toFixed(1) : n > 0 ? "<0.1" : "0";
}

// span is a duration that goes on, in whole seconds.
export function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + "m " + two(s % 60) + "s";
  if (s < 86400) return Math.floor(s / 3600) + "h " + two(Math.floor(s / 60) % 60) + "m";
  return Math.floor(s / 86400) + "d " + two(Math.floor(s / 3600) % 24) + "h";
}

// took is a duration that is over.
export function took(ms) {
  if (ms < 1) return "<1 ms";
  if (ms < 1000) return Math.round(ms) + " ms";
  return ms < 10000 ? (ms / 1000).toFixed(1) + " s" : span(ms);
}

export function whole(text) {
  return text.text + (text.cut ? "…" : "");
}
