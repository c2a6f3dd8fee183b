// Parts of a page that htmx loads: a placeholder while one takes longer than a moment, and where one fails what went wrong, with the
// request id and a button that asks again. What was there before stays.
const SLOW_MS = 200;
const timers = new WeakMap();

function copyOf(name) {
  return document.querySelector(`template[data-part-${name}]`)?.content.firstElementChild.cloneNode(true);
}

function clear(target) {
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

// Sends the request of a form or of a link again.
function ask(source) {
  if (source.matches("form")) source.requestSubmit();
  else source.click();
}

function fail(ctx, note) {
  put(ctx.target, note);
  const again = note?.querySelector("[data-part-again]");
  again?.addEventListener("click", (event) => {
    if (!ctx.sourceElement?.isConnected) return;
    event.preventDefault();
    ask(ctx.sourceElement);
  });
}

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
  const said = new DOMParser().parseFromString(ctx.text, "text/html").querySelector("[data-part-failed]");
  fail(ctx, said ? document.importNode(said, true) : copyOf("lost"));
});

document.addEventListener("htmx:error", ({ detail: { ctx } }) => {
  if (ctx?.target instanceof Element) fail(ctx, copyOf("lost"));
});

// Also of a request that a later one replaces.
document.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => clearTimeout(timers.get(ctx)));
