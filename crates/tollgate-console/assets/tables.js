// Chooses the columns of a table and the density of its rows: <table data-table="log"> whose heads name their columns (data-column), and
// the menu for it, <details data-table-view="log">. The browser keeps the choice for each table. A column without a name is always shown,
// one with data-off only once it is chosen, and below 720 px, where rows are cards, the style sheet shows all of them.
const KEPT = "tollgate.table.";

function read(name) {
  try {
    const { hidden, density } = JSON.parse(localStorage.getItem(KEPT + name)) ?? {};
    return { hidden: Array.isArray(hidden) ? new Set(hidden) : undefined, density };
  } catch {
    return {};
  }
}

function keep(name, { hidden, density }) {
  try {
    localStorage.setItem(KEPT + name, JSON.stringify({ hidden: hidden && [...hidden], density }));
  } catch {
    // Without storage the choice lasts until the page is left.
  }
}

const choices = new Map();

function choiceOf(name) {
  if (!choices.has(name)) choices.set(name, read(name));
  return choices.get(name);
}

/** The columns that the reader hid; before any choice, those that the page leaves out. */
function hiddenOf(table) {
  const choice = choiceOf(table.dataset.table);
  return choice.hidden ?? new Set([...table.tHead.rows[0].cells].filter((head) => "off" in head.dataset).map((head) => head.dataset.column));
}

/** The density that the page has chosen for a table, before the reader. */
function ownDensity(table) {
  table.dataset.density ??= table.classList.contains("tight") ? "compact" : "comfortable";
  return table.dataset.density;
}

function apply(table) {
  const [hidden, { density }] = [hiddenOf(table), choiceOf(table.dataset.table)];
  const own = ownDensity(table);
  table.classList.toggle("tight", (density ?? own) === "compact");
  const isShown = [...table.tHead.rows[0].cells].map((head) => !hidden.has(head.dataset.column));
  for (const row of table.rows) {
    let at = 0;
    for (const cell of row.cells) {
      // A cell over several columns is as wide as those of them that are shown.
      const span = Number(cell.dataset.span ?? cell.colSpan);
      const shown = isShown.slice(at, at + span).filter(Boolean).length;
      cell.classList.toggle("column-off", shown === 0);
      if (span > 1) {
        cell.dataset.span = span;
        cell.colSpan = Math.max(shown, 1);
      }
      at += span;
    }
  }
}

const tableOf = (view) => document.querySelector(`table[data-table="${CSS.escape(view.dataset.tableView)}"]`);

/** The columns of the table as they are now: roles see different ones. */
function fill(view) {
  const table = tableOf(view);
  if (!table) return;
  const [hidden, { density }] = [hiddenOf(table), choiceOf(table.dataset.table)];
  const columns = [...table.tHead.rows[0].cells].filter((head) => head.dataset.column).map((head) => {
    const label = document.createElement("label");
    label.className = "check";
    const box = document.createElement("input");
    box.type = "checkbox";
    box.value = head.dataset.column;
    box.checked = !hidden.has(box.value);
    label.append(box, head.textContent.trim());
    return label;
  });
  view.querySelector("[data-columns]").replaceChildren(...columns);
  for (const radio of view.querySelectorAll("input[type=radio]")) radio.checked = radio.value === (density ?? ownDensity(table));
}

function show() {
  for (const table of document.querySelectorAll("table[data-table]")) apply(table);
  for (const view of document.querySelectorAll("[data-table-view]")) view.hidden = !tableOf(view);
}

document.addEventListener("change", (event) => {
  const view = event.target.closest("[data-table-view]");
  const table = view && tableOf(view);
  if (!table) return;
  const choice = choiceOf(table.dataset.table);
  if (event.target.type === "radio") choice.density = event.target.value;
  else {
    choice.hidden = hiddenOf(table);
    if (event.target.checked) choice.hidden.delete(event.target.value);
    else choice.hidden.add(event.target.value);
  }
  keep(table.dataset.table, choice);
  apply(table);
});

document.addEventListener("click", (event) => {
  const within = event.target.closest("[data-table-view]");
  for (const view of document.querySelectorAll("[data-table-view][open]")) if (view !== within) view.open = false;
  if (!event.target.closest("[data-all-columns]")) return;
  const table = tableOf(within);
  if (!table) return;
  const choice = {};
  choices.set(table.dataset.table, choice);
  keep(table.dataset.table, choice);
  apply(table);
  fill(within);
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.target.closest("dialog")) return;
  const view = document.querySelector("[data-table-view][open]");
  if (!view) return;
  event.preventDefault();
  view.open = false;
  view.querySelector("summary").focus();
});

// The event does not bubble.
document.addEventListener("toggle", (event) => {
  if (event.target.matches?.("[data-table-view]") && event.target.open) fill(event.target);
}, { capture: true });

show();
for (const name of ["htmx:after:swap", "rows:new"]) document.addEventListener(name, show);
