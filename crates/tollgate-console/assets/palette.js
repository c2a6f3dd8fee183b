// The keyboard: Ctrl K searches, ? lists the shortcuts, g and a letter goes to a page, j and k move along rows or cards, e exports them, r
// loads again. Search and shortcuts are pages of the server in a dialog.
import { loadPart } from "./parts.js";

// Visitors have no search.
const search = document.querySelector("a[data-palette]");
const help = document.querySelector("[data-shortcuts]");
const WAIT_MS = 150;

function dialog(label) {
  document.querySelector("dialog.palette")?.remove();
  const made = document.createElement("dialog");
  made.className = "palette";
  made.setAttribute("aria-label", label);
  made.addEventListener("close", () => made.remove());
  made.addEventListener("click", (event) => { if (event.target === made) made.close(); });
  document.body.append(made);
  return made;
}

async function openSearch() {
  const made = dialog(search.dataset.palette);
  const input = document.createElement("input");
  input.className = "input";
  input.type = "search";
  input.placeholder = search.dataset.hint;
  input.setAttribute("aria-label", search.dataset.palette);
  const list = document.createElement("div");
  made.append(input, list);
  made.showModal();
  let waiting;
  let latest = 0;
  const show = async () => {
    const asked = input.value;
    latest += 1;
    const mine = latest;
    // Sent in the body and not in the address, because it may be a key.
    const sent = new URLSearchParams({ q: asked, csrf: search.dataset.csrf });
    // Answers may arrive out of order.
    const isCurrent = () => mine === latest && asked === input.value;
    const page = await loadPart(list, search.href, show, { method: "POST", body: sent, isCurrent });
    const found = page?.getElementById("hits");
    if (found) list.replaceChildren(found);
  };
  input.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(show, WAIT_MS); });
  made.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a, button")];
    const at = links.indexOf(document.activeElement);
    // In a search field the first Escape would only empty the field.
    if (event.key === "Escape") { event.preventDefault(); made.close(); return; }
    if (event.key === "Enter" && document.activeElement === input) { links[0]?.click(); return; }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    const next = at + (event.key === "ArrowDown" ? 1 : -1);
    (next < 0 ? input : links[Math.min(next, links.length - 1)])?.focus();
  });
  await show();
}

async function openShortcuts() {
  const made = dialog(help.dataset.shortcutsTitle);
  const page = await loadPart(made, help.dataset.shortcuts, openShortcuts);
  const found = page?.getElementById("shortcuts");
  if (found) {
    made.append(found);
    found.tabIndex = -1;
  }
  // The key may have been pressed again meanwhile, which opened another dialog.
  if (!made.isConnected) return;
  made.showModal();
  found?.focus();
}

function moveAlongRows(step) {
  // The tables of charts are closed until the reader opens them.
  const links = [...document.querySelectorAll("main :is(tbody tr, .model)")].map((row) => row.querySelector("a"));
  const rows = links.filter((link) => link?.checkVisibility());
  const at = rows.findIndex((link) => link.closest("tr, .model").contains(document.activeElement));
  rows[Math.max(0, Math.min(rows.length - 1, at + step))]?.focus();
}

// A page may have a link to reload it. The answer to a form is not reloaded: it may show a secret that is shown only once, or what was
// typed.
function reload() {
  if (document.documentElement.dataset.reloadsFrom) return;
  const link = document.querySelector("[data-reload]");
  if (link) link.click(); else location.reload();
}

let goes = false;

function press(event) {
  if (goes) {
    goes = false;
    document.querySelector(`a[data-go="${CSS.escape(event.key)}"]`)?.click();
    return;
  }
  switch (event.key) {
    case "g": goes = true; setTimeout(() => { goes = false; }, 1500); break;
    case "?": openShortcuts(); break;
    case "j": moveAlongRows(1); break;
    case "k": moveAlongRows(-1); break;
    case "e": document.querySelector("a[data-export]")?.click(); break;
    case "r": if (!event.repeat) reload(); break;
  }
}

if (help) {
  search?.addEventListener("click", (event) => { event.preventDefault(); openSearch(); });
  document.addEventListener("keydown", (event) => {
    if (search && (event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openSearch();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable], dialog")) return;
    press(event);
  });
}
