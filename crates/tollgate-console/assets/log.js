// The usage log: a record beside the list, its keys, and new records as they are booked. Lists and records come from the server.
const drawer = document.getElementById("drawer");
let opener;

function close() {
  if (!drawer.firstElementChild) return;
  drawer.replaceChildren();
  opener?.focus();
}

document.addEventListener("click", (event) => {
  const record = event.target.closest("[data-record]");
  if (record) opener = record;
  if (event.target.closest("[data-close]")) {
    event.preventDefault();
    close();
  }
});

document.addEventListener("htmx:after:swap", () => drawer.firstElementChild?.focus());

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  if (event.key === "Escape") close();
  if (event.key !== "[" && event.key !== "]") return;
  const records = [...document.querySelectorAll("[data-record]")];
  const next = records[records.findIndex((record) => record === opener || record.href === opener?.href) + (event.key === "]" ? 1 : -1)];
  if (next && drawer.firstElementChild) next.click();
});

// New records are loaded with the list, at most once a second. The stream says only that there are some.
const button = document.querySelector("[data-follow]");
let stream;
let waiting;

function say(text, pressed) {
  button.firstElementChild.textContent = text;
  button.setAttribute("aria-pressed", String(pressed));
}

async function reload() {
  waiting = undefined;
  const answer = await fetch(location.href, { headers: { "hx-request": "true" } });
  if (!answer.ok || !stream) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const rows = page.getElementById("rows");
  if (!rows) return;
  document.getElementById("rows").replaceWith(rows);
  window.htmx?.process(rows);
  document.dispatchEvent(new CustomEvent("rows:new"));
}

function follow() {
  stream = new EventSource(document.getElementById("rows").dataset.live);
  stream.addEventListener("record", () => { waiting ??= setTimeout(reload, 1000); });
  stream.addEventListener("open", () => say(button.dataset.liveOn, true));
  stream.addEventListener("error", () => say(button.dataset.liveLost, true));
  say(button.dataset.liveOn, true);
}

// Another filter has another stream.
document.addEventListener("htmx:after:swap", () => {
  if (!stream || stream.url.endsWith(document.getElementById("rows").dataset.live)) return;
  stream.close();
  follow();
});

if (button) {
  button.hidden = false;
  button.addEventListener("click", () => {
    if (!stream) return follow();
    stream.close();
    stream = undefined;
    say(button.dataset.liveOff, false);
  });
}
