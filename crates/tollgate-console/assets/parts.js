// Parts of a page that are loaded after it, by htmx or by a script: a placeholder while htmx takes longer than a moment, and for a
// failed part the error, with the request id and a button to retry. The earlier content stays.
const SLOW_MS = 200;
const timers = new WeakMap();

function copyOf(name) {
  return document.querySelector(`template[data-part-${name}]`)?.content.firstElementChild.cloneNode(true);
}

/** Removes the placeholder and the fault of a part. */
export function clear(target) {
  target.removeAttribute("aria-busy");
  for (const note of target.querySelectorAll("[data-part-note]")) note.remove();
}

// The drawer is empty without a record, so the note gets a drawer of its own.
function put(target, note) {
  clear(target);
  if (!note) return;
  let shown = note;
  if (target.id === "drawer") {
    shown = document.createElement("section");
    shown.className = "drawer";
    shown.append(note);
    for (const close of note.querySelectorAll("[data-close]")) close.hidden = false;
    target.replaceChildren(shown);
  } else {
    target.prepend(note);
  }
  shown.dataset.partNote = "";
}

// Shows a fault with a button that calls `again`; if that returns false, the button leads to its own address.
function fail(target, note, again) {
  put(target, note);
  note?.querySelector("[data-part-again]")?.addEventListener("click", (event) => {
    if (again() !== false) event.preventDefault();
  });
}

// The fault that an answer describes; empty for an answer that is not the gateway's, such as a proxy's.
function faultOf(text) {
  const said = new DOMParser().parseFromString(text, "text/html").querySelector("[data-part-failed]");
  return said ? document.importNode(said, true) : copyOf("lost");
}

/** Shows in a part that there was no answer, with a button that calls `again`. */
export function showLost(target, again) {
  fail(target, copyOf("lost"), again);
}

/**
 * Loads a page for one of its parts and returns it as a document. If that fails, returns undefined, and `target` shows the fault with a
 * button that calls `again`. `target` is an element, or a function that finds it once the answer is there. A fault that is already shown
 * is left unchanged, so that it is not announced repeatedly. An answer for which `isCurrent` returns false changes nothing.
 */
export async function loadPart(target, address, again, { isCurrent = () => true, ...options } = {}) {
  const answer = await fetch(address, { ...options, headers: { "hx-request": "true" } }).catch(() => undefined);
  const text = await answer?.text().catch(() => undefined);
  if (!isCurrent()) return undefined;
  const signIn = answer?.status === 401 && answer.headers.get("hx-redirect");
  if (signIn) {
    location.assign(signIn);
    return undefined;
  }
  const part = typeof target === "function" ? target() : target;
  if (answer?.ok && !answer.redirected && text !== undefined) {
    clear(part);
    return new DOMParser().parseFromString(text, "text/html");
  }
  if (part.querySelector("[data-part-note]")) return undefined;
  fail(part, text === undefined || answer.ok ? copyOf("lost") : faultOf(text), () => { clear(part); again(); });
  return undefined;
}

// Sends the request of a form or of a link again.
function askAgain(source) {
  if (!source?.isConnected) return false;
  if (source.matches("form")) source.requestSubmit();
  else source.click();
  return true;
}

// htmx sends no request for a click with Ctrl, but prevents what the browser does with it: the link would do nothing.
document.addEventListener("click", (event) => {
  if ((event.ctrlKey || event.metaKey || event.shiftKey) && event.target.closest("a[href]")) event.stopPropagation();
}, { capture: true });

document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
  if (!(ctx.target instanceof Element)) return;
  timers.set(ctx, setTimeout(() => {
    put(ctx.target, copyOf("loading"));
    ctx.target.setAttribute("aria-busy", "true");
  }, SLOW_MS));
});

document.addEventListener("htmx:after:request", (event) => {
  const { ctx } = event.detail;
  clearTimeout(timers.get(ctx));
  if (!(ctx.target instanceof Element)) return;
  clear(ctx.target);
  // A session that has ended leads to the sign-in.
  if (ctx.response.status < 400 || ctx.response.headers.get("hx-redirect")) return;
  event.preventDefault();
  fail(ctx.target, faultOf(ctx.text), () => askAgain(ctx.sourceElement));
});

document.addEventListener("htmx:error", ({ detail: { ctx } }) => {
  if (ctx?.target instanceof Element) showLost(ctx.target, () => askAgain(ctx.sourceElement));
});

// Also sent for a request that a later one replaces.
document.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => clearTimeout(timers.get(ctx)));
