// The usage log: new records as they are booked, and bars that are dragged over. Lists come from the server. Whether new records are
// followed is in the address.
import { write } from "./drawer.js";
import { listen } from "./events.js";
import { loadPart } from "./parts.js";

// The list is loaded without the form, so fields with impossible values are marked here.
function mark() {
  const faults = new Set([...document.querySelectorAll("#rows [data-fault]")].map((fault) => fault.dataset.fault));
  for (const field of document.querySelectorAll("#filter [name]")) {
    if (faults.has(field.name)) {
      field.setAttribute("aria-invalid", "true");
      field.setAttribute("aria-describedby", `fault-${field.name}`);
    } else {
      field.removeAttribute("aria-invalid");
      field.removeAttribute("aria-describedby");
    }
    const text = field.closest(".field")?.querySelector(".err");
    if (text && !faults.has(field.name)) text.remove();
  }
}

document.addEventListener("htmx:after:swap", mark);

// Dragging over the bars selects their time. Each bar links to its own time; the links of its parts also filter by
// outcome.
let drag;

function barsOf(svg) {
  return [...svg.querySelectorAll(".hit")].map((hit) => hit.closest("a"));
}

function barAt(svg, x) {
  const { left, width } = svg.getBoundingClientRect();
  const count = barsOf(svg).length;
  const at = Math.floor(((x - left) / width) * count);
  return Math.min(Math.max(at, 0), count - 1);
}

document.addEventListener("dragstart", (event) => { if (event.target.closest?.(".bars-plot")) event.preventDefault(); });

document.addEventListener("pointerdown", (event) => {
  const svg = event.target.closest?.("#rows .bars-plot svg");
  if (!svg || event.button !== 0 || event.pointerType === "touch" || barsOf(svg).length === 0) return;
  drag = { svg, from: barAt(svg, event.clientX), brush: null };
});

document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const to = barAt(drag.svg, event.clientX);
  if (to === drag.from && !drag.brush) return;
  if (!drag.brush) {
    drag.brush = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    drag.brush.setAttribute("class", "brush");
    drag.svg.append(drag.brush);
  }
  const { width, height } = drag.svg.viewBox.baseVal;
  const step = width / barsOf(drag.svg).length;
  const [first, last] = [Math.min(drag.from, to), Math.max(drag.from, to)];
  for (const [name, value] of [["x", first * step], ["y", 0], ["width", (last - first + 1) * step], ["height", height]]) drag.brush.setAttribute(name, value);
});

document.addEventListener("pointerup", (event) => {
  if (!drag) return;
  const { svg, from, brush } = drag;
  drag = undefined;
  if (!brush) return;
  brush.remove();
  const to = barAt(svg, event.clientX);
  const bars = barsOf(svg).map((bar) => new URL(bar.getAttribute("href"), location.href));
  const chosen = new URL(bars[Math.min(from, to)]);
  chosen.searchParams.set("until", bars[Math.max(from, to)].searchParams.get("until"));
  // The click that ends a drag must not follow the link of a bar.
  document.addEventListener("click", (click) => { click.preventDefault(); click.stopPropagation(); }, { capture: true, once: true });
  location.assign(chosen);
});

// A view and the search for an id keep the present filter, which htmx changes without loading the page.
document.addEventListener("submit", (event) => {
  const query = event.target.querySelector("[data-query]");
  if (query) query.value = location.search;
});

// New records are loaded with the list, at most once a second. The stream says only that there are some. While the list is paused, is
// scrolled down, or shows older records, they are counted instead, so that nothing moves below the reader's eyes.
const SCROLLED_PX = 200;
const MOST_COUNTED = 999;
const button = document.querySelector("[data-follow]");
const news = document.querySelector("[data-new]");
let stream;
let isPaused = false;
let isLost = false;
let waiting;
let unseen = 0;

const isOlder = () => new URLSearchParams(location.search).has("after");
const isHeld = () => isPaused || isOlder() || scrollY > SCROLLED_PX;

// The dot is full while the list is live.
function say(text, dot) {
  button.firstElementChild.textContent = text;
  button.firstElementChild.className = dot;
  button.setAttribute("aria-pressed", String(dot === "live"));
}

function sayState() {
  if (!stream) say(button.dataset.liveOff, "");
  else if (isPaused) say(button.dataset.livePaused, "live paused");
  else if (isLost) say(button.dataset.liveLost, "live paused");
  else say(button.dataset.liveOn, "live");
}

function count(number) {
  unseen = number;
  news.hidden = unseen === 0;
  const shown = unseen > MOST_COUNTED ? `${MOST_COUNTED}+` : unseen;
  news.textContent = unseen === 1 ? news.dataset.new : news.dataset.newSeveral.replace("{count}", shown);
}

async function reload() {
  waiting = undefined;
  const part = () => document.getElementById("rows");
  const { live } = part().dataset;
  const seen = unseen;
  // Another filter may have replaced the list meanwhile.
  const page = await loadPart(part, location.href, reload, { isCurrent: () => part().dataset.live === live });
  const rows = page?.getElementById("rows");
  if (!rows) return;
  document.getElementById("rows").replaceWith(rows);
  window.htmx?.process(rows);
  // Records that came after the request for the list may not be in it.
  if (!isOlder()) count(unseen - seen);
  document.dispatchEvent(new CustomEvent("rows:new"));
}

function take() {
  if (isHeld()) count(unseen + 1);
  else waiting ??= setTimeout(reload, 1000);
}

// Records missed while the connection was lost are loaded with the list, or counted: the stream goes on after the last event, of which
// the first one has the position as well.
function follow() {
  isLost = false;
  stream = listen(document.getElementById("rows").dataset.live, {
    opened: (wasLost) => {
      isLost = false;
      sayState();
      if (wasLost && !isHeld()) waiting ??= setTimeout(reload, 0);
    },
    lost: () => {
      isLost = true;
      sayState();
    },
    heard: { begin: () => {}, record: take },
    position: "after",
  });
  sayState();
}

// A changed filter needs another stream; its list was just loaded and has every record.
document.addEventListener("htmx:after:swap", () => {
  if (!stream) return;
  if (!isOlder()) count(0);
  if (stream.address === document.getElementById("rows").dataset.live) return;
  stream.close();
  follow();
});

if (button) {
  button.hidden = false;
  button.addEventListener("click", () => {
    if (stream) isPaused = !isPaused;
    else follow();
    sayState();
    keepFollowing();
  });
  news.addEventListener("click", () => {
    const newest = document.querySelector("[data-newest]");
    if (newest) return location.assign(newest.href);
    scrollTo({ top: 0 });
    return reload();
  });
  addEventListener("scroll", () => { if (unseen > 0 && !isHeld()) waiting ??= setTimeout(reload, 0); }, { passive: true });
  if (new URLSearchParams(location.search).get("follow") === "1") follow();
}

// The address, the form and the links of the list have the choice, too.
function keepFollowing() {
  const isLive = stream && !isPaused;
  write("follow", isLive ? "1" : null, false);
  const form = document.getElementById("filter");
  form.querySelector("[name=follow]")?.remove();
  if (isLive) {
    const kept = document.createElement("input");
    Object.assign(kept, { type: "hidden", name: "follow", value: "1" });
    form.append(kept);
  }
  waiting ??= setTimeout(reload, 0);
}
