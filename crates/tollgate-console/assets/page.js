// The script of every page: theme, copy buttons, local times, the search key. Pages work without it.
import { keepDrafts } from "./drafts.js";
import { clockText, offsetAt, timeFormat, timeOf, zoneName } from "./zone.js";

const root = document.documentElement;

// Reloading the answer to a form would send the form again, for instance one that replaces a key.
if (root.dataset.reloadsFrom) history.replaceState(history.state, "", root.dataset.reloadsFrom);

// The server writes data-theme, so a page never flashes the wrong theme.
for (const form of document.querySelectorAll("form[data-theme-form]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const theme = event.submitter?.value ?? "";
    if (theme === "light" || theme === "dark") root.dataset.theme = theme; else delete root.dataset.theme;
    document.cookie = `tollgate_theme=${theme}; path=/; max-age=31536000; samesite=lax`;
    // The server stores it for the member, too. The page does not wait for that; if it fails, this browser still has the
    // cookie.
    const body = new URLSearchParams(new FormData(form, event.submitter));
    fetch(form.action, { method: "POST", body, redirect: "manual", keepalive: true }).catch(() => {});
    for (const button of form.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.value === theme));
    root.dispatchEvent(new CustomEvent("themechange"));
  });
}

// Conversations of the playground are removed, so that the next member who signs in in this browser does not see them.
for (const form of document.querySelectorAll("form[action$='/sign-out']")) {
  form.addEventListener("submit", () => localStorage.removeItem(`tollgate.playground.${root.dataset.member}`));
}

for (const select of document.querySelectorAll("select[data-submit]")) {
  select.addEventListener("change", () => select.form.requestSubmit());
}

// A password is shown while its box is checked, and sent as a password, so that browsers do not offer it as a text later.
for (const label of document.querySelectorAll("[data-reveal]")) {
  const [field, box] = [document.getElementById(label.dataset.reveal), label.querySelector("input")];
  label.hidden = false;
  box.checked = false;
  box.addEventListener("change", () => { field.type = box.checked ? "text" : "password"; });
  field.form.addEventListener("submit", () => { field.type = "password"; });
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    announce(root.dataset.copied);
  } catch {
    copySelected(button);
  }
});

function announce(text) {
  const area = document.getElementById("toasts");
  if (!area || !text) return;
  const toast = document.createElement("div");
  toast.className = "toast";
  toast.textContent = text;
  for (const earlier of area.querySelectorAll(".toast:not([data-undo])")) earlier.remove();
  area.append(toast);
  const timer = setTimeout(() => toast.remove(), 4000);
  return { toast, timer };
}

// Without access to the clipboard (no permission, or plain HTTP on another host) copies a selection. If that is refused, too, the message
// shows the text, selected, until it loses the focus.
function copySelected(button) {
  const [before, field] = [document.activeElement, document.createElement("textarea")];
  [field.className, field.readOnly, field.value] = ["vh", true, button.dataset.copy];
  // The hidden class would join lines and spaces of the copied text.
  field.style.whiteSpace = "pre";
  // Elements outside an open dialog cannot have the focus.
  (button.closest("dialog") ?? document.body).append(field);
  field.focus({ preventScroll: true });
  field.select();
  if (document.execCommand("copy")) {
    field.remove();
    before?.focus({ preventScroll: true });
    announce(root.dataset.copied);
    return;
  }
  const { toast, timer } = announce(root.dataset.notCopied);
  clearTimeout(timer);
  field.className = "input mono";
  field.setAttribute("aria-label", root.dataset.notCopied);
  toast.append(field);
  field.focus();
  field.select();
  field.addEventListener("blur", () => { if (document.hasFocus()) toast.remove(); });
}

keepDrafts(() => announce(root.dataset.restored));

// Touch screens show no titles, so a tap shows them. A tap on a control still works the control.
const TOUCHED = matchMedia("(hover: none)");
document.addEventListener("click", (event) => {
  if (!TOUCHED.matches || event.defaultPrevented || event.target.closest("a, button, input, select, textarea, label, summary")) return;
  // The title of a chart's column is an SVG element.
  announce(event.target.closest("[title]")?.getAttribute("title") ?? event.target.closest(".hit")?.textContent);
});

// Undoing is offered for ten seconds, and longer while the button is pointed at or focused.
const UNDO_MS = 10_000;
const undo = document.querySelector("[data-undo]");

function endUndo() {
  if (undo.matches(":hover, :focus-within")) setTimeout(endUndo, 1000); else undo.remove();
}
if (undo) setTimeout(endUndo, UNDO_MS);

// Times are sent in UTC and shown in the zone of the profile or the browser; some as a day, short ones without the date if it is today, exact
// ones with milliseconds and the offset from UTC. Titles name the zone, and have the time in UTC as well.
function localTimes(within) {
  const hour = { hour: "2-digit", minute: "2-digit" };
  const date = { day: "numeric", month: "short" };
  const second = { ...hour, second: "2-digit" };
  const [clock, dayClock] = [timeFormat(second), timeFormat({ ...date, ...second })];
  const [minute, dayMinute] = [timeFormat(hour), timeFormat({ ...date, ...hour })];
  const exact = timeFormat({ ...date, ...second, year: "numeric", fractionalSecondDigits: 3 });
  const format = timeFormat({ ...date, ...hour, year: "numeric" });
  const day = timeFormat({ ...date, year: "numeric" });
  const whole = timeFormat({ ...date, ...hour, year: "numeric", second: "2-digit", timeZoneName: "short" });
  const name = (time, at, utc) => {
    time.title = `${whole.format(at)} · ${utc}`;
    time.dataset.zoned = "";
  };
  // Times in words, such as "3 min ago", have the time as their title.
  for (const time of within.querySelectorAll("time[datetime][title]:not([data-zoned])")) {
    const at = new Date(time.dateTime);
    if (!Number.isNaN(at.valueOf())) name(time, at, time.title);
  }
  for (const time of within.querySelectorAll("time[datetime][data-short]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.valueOf()) || time.title) continue;
    name(time, at, time.textContent);
    const [today, before] = time.dataset.short ? [minute, dayMinute] : [clock, dayClock];
    time.textContent = (day.format(at) === day.format(new Date()) ? today : before).format(at);
  }
  for (const time of within.querySelectorAll("time[datetime][data-local]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.valueOf()) || time.title) continue;
    name(time, at, time.textContent);
    time.textContent = (time.dataset.local === "day" ? day : format).format(at);
  }
  for (const time of within.querySelectorAll("time[datetime][data-exact]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.valueOf()) || time.title) continue;
    name(time, at, time.textContent);
    time.textContent = `${exact.format(at)} ${offsetAt(at)}`;
  }
}

// Fields take times in the same zone, and their forms send them in UTC. A day is sent as its beginning, or as its end. Without this script
// they are in UTC, as their labels say.
const DAY_MS = 86_400_000;

function localFields(within) {
  for (const field of within.querySelectorAll("input[data-in-zone]:not([data-zoned])")) {
    field.dataset.zoned = "";
    const at = new Date(field.dataset.at ?? `${field.defaultValue}Z`);
    if (Number.isNaN(at.valueOf())) continue;
    field.value = field.type === "date" ? clockText(at - (field.dataset.inZone === "end" ? 1000 : 0)).slice(0, 10) : clockText(at);
  }
  for (const zone of within.querySelectorAll("[data-zone]")) zone.textContent = zoneName;
}

function timeOfField({ type, value, dataset }) {
  if (type !== "date") return timeOf(value.slice(0, 16));
  const begin = Date.parse(value) + (dataset.inZone === "end" ? DAY_MS : 0);
  return Number.isNaN(begin) ? new Date(NaN) : timeOf(new Date(begin).toISOString().slice(0, 16));
}

document.addEventListener("formdata", ({ target, formData }) => {
  for (const field of target.querySelectorAll("input[data-in-zone]")) {
    const at = timeOfField(field);
    if (!Number.isNaN(at.valueOf())) formData.set(field.name, at.toISOString().replace(".000", ""));
  }
});

function local() {
  localTimes(document);
  localFields(document);
}
local();
for (const name of ["htmx:after:swap", "rows:new"]) document.addEventListener(name, local);

// The slash goes to the search of the page, else to the first field of its filter, else to the search of the console. On phones
// filters are folded.
function searchField() {
  const filter = "main form[role=search] :is(input:not([type=hidden]), select)";
  const fields = [...document.querySelectorAll("main input[type=search]"), ...document.querySelectorAll(filter)];
  const seen = () => fields.find((field) => field.checkVisibility());
  const folded = document.querySelector("main details.show-filters:not([open])");
  if (!seen() && folded) folded.open = true;
  return seen();
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable], dialog")) return;
  const [field, palette] = [searchField(), document.querySelector("a[data-palette]")];
  if (!field && !palette) return;
  event.preventDefault();
  if (field) field.focus(); else palette.click();
});

// Escape closes what a summary has opened, and goes back to it.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.target.closest("dialog")) return;
  const open = event.target.closest("details.more[open], details.menu-down[open]");
  if (!open) return;
  open.open = false;
  open.querySelector("summary").focus();
});

// The menu of a row closes when something else is pressed.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.row-menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});

for (const form of document.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", ({ submitter }) => {
    const primary = form.querySelector("button.primary");
    // A button that sends the form to another address was pressed, such as one that cancels.
    if (!submitter?.hasAttribute("formaction")) primary?.setAttribute("aria-busy", "true");
  });
}
