// Reloads a part of the page periodically while the page is visible: <div id="part" data-refresh="address">. Elements that are
// under the pointer, focused, opened or chosen are not replaced. A part that cannot be loaded stays and shows the error. A dot in the head
// of the page tells whether the part is live: <span class="live" data-live-on="…" data-live-paused="…" data-live-lost="…" hidden>.
import { loadPart } from "./parts.js";

const SECONDS = 30;
const dot = document.querySelector("[data-live-on][data-live-lost]");
let isLost = false;

function isInUse(part) {
  return document.hidden || part.matches(":hover") || part.contains(document.activeElement) || part.querySelector("details[open], [data-choice]:checked") || document.querySelector("dialog[open], .menu-down[open]");
}

async function load(part) {
  const page = await loadPart(part, part.dataset.refresh, () => load(part).then(replace));
  isLost = !page;
  return page && [part, page.getElementById(part.id)];
}

function replace([part, fresh] = []) {
  if (!fresh) return;
  // Tables stay where they were scrolled to.
  const tables = [...part.querySelectorAll(".tw")].map(({ scrollLeft, scrollTop }) => [scrollLeft, scrollTop]);
  part.replaceWith(fresh);
  for (const [at, table] of fresh.querySelectorAll(".tw").entries()) table.scrollTo(...(tables[at] ?? [0, 0]));
  document.dispatchEvent(new CustomEvent("rows:new"));
}

async function refresh() {
  const part = document.querySelector("[data-refresh]");
  if (!part || isInUse(part)) return;
  const loaded = await load(part);
  if (!isInUse(part)) replace(loaded);
}

// Whether the part is in use depends on pointer, focus and choices, so the dot asks instead of following all of their events.
function sayState() {
  const part = document.querySelector("[data-refresh]");
  if (!part || document.hidden) return;
  const isPaused = isInUse(part);
  const { liveOn, livePaused, liveLost } = dot.dataset;
  const text = isLost ? liveLost : isPaused ? livePaused : liveOn;
  if (dot.textContent !== text) dot.textContent = text;
  dot.classList.toggle("paused", isLost || isPaused);
  dot.hidden = false;
}

if (document.querySelector("[data-refresh]")) {
  setInterval(refresh, SECONDS * 1000);
  if (dot) {
    sayState();
    setInterval(sayState, 500);
  }
}
