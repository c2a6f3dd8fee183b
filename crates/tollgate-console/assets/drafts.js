// Restores a form that was sent after the session had ended, or that was answered by an error page, with what was typed. The tab keeps the
// fields of a form from its sending to the next page, without secrets: passwords, files, and fields that are marked as secret.
const KEPT = "tollgate.draft";
const MAX_CHARS = 100_000;
const LEFT_OUT = ["password", "file", "submit", "button", "reset", "image"];

const root = document.documentElement;
// The member who is signed in, if any.
const { member } = root.dataset;
const isBox = (control) => control.type === "checkbox" || control.type === "radio";
const isSecret = (control) => "secret" in control.dataset || control.autocomplete === "one-time-code";
// Hidden fields come back with the others, so that a change by another person meanwhile is not overwritten, and money is not posted twice.
// The token belongs to the session.
const isKept = (control) => control.name && control.name !== "csrf" && !control.disabled && !LEFT_OUT.includes(control.type) && !isSecret(control);
const controlsOf = (form) => [...form.elements].filter((control) => control.matches("input, select, textarea") && isKept(control));
const fieldsOf = (form) => controlsOf(form).map((control) => ({
  name: control.name, value: control.value, on: isBox(control) ? control.checked : undefined, hidden: control.type === "hidden",
}));
// The query of the target says what a form is about, too.
const targetOf = (form) => new URL(form.action).pathname + new URL(form.action).search;
// Hidden fields that name the rows of a form. With other rows it is another form: what was typed would be shown beside the wrong row.
const ROWS = /^(channel|key|shown|group_\d+)$/;
const rowsOf = (fields) => fields.filter(({ name, hidden }) => hidden && ROWS.test(name)).map(({ name, value }) => `${name}=${value}`).join("\n");

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT));
  } catch {
    return null;
  }
}

function keep(draft) {
  try {
    const text = draft && JSON.stringify(draft);
    if (text && text.length <= MAX_CHARS) sessionStorage.setItem(KEPT, text); else sessionStorage.removeItem(KEPT);
  } catch {
    // A browser without storage loses the form; the sign-in page says so.
  }
}

function draftOf(form) {
  const fields = fieldsOf(form);
  return fields.some(({ hidden }) => !hidden) ? { member, target: targetOf(form), fields } : null;
}

function show(control) {
  for (let folded = control.closest("details:not([open])"); folded; folded = folded.parentElement.closest("details:not([open])")) folded.open = true;
}

// Puts choices whose order matters back in their order; new ones come last.
function putInOrder(form, fields) {
  for (const list of form.querySelectorAll("[data-order]")) {
    const place = (item) => {
      const box = item.querySelector("input");
      const at = fields.findIndex(({ name, value }) => name === box.name && value === box.value);
      return at < 0 ? fields.length : at;
    };
    list.append(...[...list.children].sort((one, other) => place(one) - place(other)));
    list.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

// Fills in the form of the draft. Returns whether it is on this page.
function restore({ target, fields }) {
  const isOfDraft = (form) => targetOf(form) === target && rowsOf(fieldsOf(form)) === rowsOf(fields);
  const form = [...document.querySelectorAll("main form[method=post]")].find(isOfDraft);
  if (!form) return false;
  const left = [...fields];
  for (const control of controlsOf(form)) {
    const at = left.findIndex(({ name, value, on }) => name === control.name && (on === undefined || value === control.value));
    if (at < 0) continue;
    const [{ value, on }] = left.splice(at, 1);
    const isChanged = on === undefined ? control.value !== value : control.checked !== on;
    if (!isChanged) continue;
    if (on === undefined) control.value = value; else control.checked = on;
    show(control);
  }
  putInOrder(form, fields);
  return true;
}

/** Keeps the forms of this page, and fills in the one that was lost; `restored` is called if there is one. */
export function keepDrafts(restored) {
  const draft = read();
  const lost = document.querySelector("[data-form-lost]");
  if (draft && lost) {
    keep({ ...draft, isLost: true });
    lost.textContent = lost.dataset.formLost;
    lost.hidden = false;
  } else if (draft && member && !document.querySelector(".code-page")) {
    // The page of an error has no form; the next page may be that of the form again.
    keep(null);
    // A draft is never shown to another member.
    if (draft.isLost && draft.member === member && restore(draft)) restored();
  }
  if (!member) return;
  document.addEventListener("submit", ({ target, defaultPrevented }) => {
    if (!defaultPrevented && target.matches("main form[method=post]")) keep(draftOf(target));
  });
}
