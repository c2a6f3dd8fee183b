// The drawer of a row beside its list: its keys, and the row in the address. Lists and drawers come from the server. The link of a row
// has its id (data-record). In the usage log the link opens the drawer (hx-get); elsewhere it leads to the page of the row, and a click
// on the rest of the row opens the drawer. The form of a new row opens in the drawer, too; its link has data-beside.
import { loadPart } from "./parts.js";

const drawer = document.getElementById("drawer");
const shown = () => drawer.firstElementChild?.dataset.open ?? null;
const wanted = () => new URLSearchParams(location.search).get("open");
const rows = () => [...document.querySelectorAll("[data-record]")];
const forms = () => [...document.querySelectorAll("[data-beside]")];
const rowOf = (id) => rows().find((row) => row.dataset.record === id) ?? forms().find((link) => link.dataset.beside === id);
const showsForm = () => forms().some((link) => link.dataset.beside === shown());
const isPlain = ({ ctrlKey, metaKey, shiftKey, altKey }) => !ctrlKey && !metaKey && !shiftKey && !altKey;
let opener = rowOf(shown());
let loading;
// A form that was closed by Escape or by going back, with what was typed. Its link shows it again.
let kept;

/** Writes a parameter of the address. */
export function write(name, value, push) {
  const address = new URL(location.href);
  if (value) address.searchParams.set(name, value);
  else address.searchParams.delete(name);
  if (address.href === location.href) return;
  if (push) history.pushState({}, "", address);
  else history.replaceState(history.state, "", address);
}

// After a reload of the list the row has another link.
function returnFocus(id) {
  (opener?.isConnected ? opener : rowOf(id))?.focus();
}

// Returns the id of what was shown.
function empty(keepsForm) {
  const id = shown();
  if (showsForm()) kept = keepsForm ? drawer.firstElementChild : undefined;
  drawer.replaceChildren();
  return id;
}

function close(keepsForm) {
  loading = undefined;
  if (!drawer.firstElementChild) return;
  const id = empty(keepsForm);
  write("open", null, false);
  returnFocus(id);
}

function focusDrawer() {
  (drawer.querySelector("[autofocus]") ?? drawer.firstElementChild).focus();
}

// The next row replaces this one in the history. A reloaded list keeps its row.
function show() {
  if (!shown()) return;
  write("open", shown(), !wanted());
  if (!drawer.contains(document.activeElement)) focusDrawer();
}

async function load(row) {
  opener = row;
  // Has the filter of the list, so that the drawer can link back to it.
  const address = new URL(row.href);
  address.search = location.search;
  const own = {};
  loading = own;
  const page = await loadPart(drawer, address, () => load(row), { isCurrent: () => loading === own });
  const part = page?.querySelector("[data-open]");
  if (!part) return;
  drawer.replaceChildren(part);
  document.dispatchEvent(new CustomEvent("rows:new"));
  show();
}

// A form is not replaced, because what was typed would be lost.
function open(row) {
  if (showsForm()) return;
  if (row.hasAttribute("hx-get")) row.click();
  else load(row);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-beside]");
  if (!link || !isPlain(event)) return;
  event.preventDefault();
  if (shown() === link.dataset.beside) return focusDrawer();
  if (kept?.dataset.open !== link.dataset.beside) return load(link);
  opener = link;
  loading = undefined;
  drawer.replaceChildren(kept);
  show();
});

document.addEventListener("click", (event) => {
  const row = event.target.closest("[data-record]");
  if (row) opener = row;
  if (event.target.closest("[data-close]")) {
    event.preventDefault();
    close(false);
  }
});

// Controls in a row keep their own action, and text can be selected.
const OWN = "a, button, input, select, textarea, label, summary, form";

function openRow(event) {
  const row = event.target.closest("tbody tr")?.querySelector("[data-record]");
  if (!row || event.target.closest(OWN) || String(getSelection())) return;
  event.preventDefault();
  const isMiddle = event.button === 1;
  if (!isMiddle && isPlain(event)) return open(row);
  // A script cannot cause a middle click that follows a link. A click with Ctrl, or on a Mac with Command, also opens a
  // new tab.
  const { ctrlKey, metaKey, shiftKey, altKey } = event;
  const keys = isMiddle ? { ctrlKey: true, metaKey: true } : { ctrlKey, metaKey, shiftKey, altKey };
  row.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, composed: true, view: window, ...keys }));
}

document.addEventListener("click", openRow);
document.addEventListener("auxclick", (event) => { if (event.button === 1) openRow(event); });
document.addEventListener("htmx:after:swap", show);

addEventListener("popstate", () => {
  if (wanted() === shown()) return;
  if (wanted()) return location.reload();
  returnFocus(empty(true));
});

if (shown()) focusDrawer();
else if (wanted()) write("open", null, false);

function step(by) {
  const all = rows();
  const next = all[all.findIndex((row) => row === opener || row.href === opener?.href) + by];
  if (next && drawer.firstElementChild) open(next);
}

drawer.addEventListener("click", (event) => {
  const button = event.target.closest("[data-step]");
  if (button) step(Number(button.dataset.step));
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  // What is open over the drawer closes first, as page.js and tables.js do.
  const isOfMenu = event.defaultPrevented || event.target.closest("details.more[open], details.menu-down[open]");
  if (event.key === "Escape" && !isOfMenu) close(true);
  if (event.key === "[" || event.key === "]") step(event.key === "]" ? 1 : -1);
});
