// The preview of what a group offers, loaded again when a field has changed. The button does the same without scripts.
import { loadPart } from "./parts.js";

const WAIT_MS = 500;
const button = document.querySelector("button[formaction$='#offers']");
let timer;
let latest = 0;

async function load() {
  const mine = ++latest;
  const part = document.getElementById("offers");
  const page = await loadPart(part, button.formAction, load, {
    method: "POST",
    body: new URLSearchParams(new FormData(button.form)),
    isCurrent: () => mine === latest,
  });
  const fresh = page?.getElementById("offers");
  if (fresh) part.replaceChildren(part.firstElementChild, ...document.importNode(fresh, true).children);
}

button?.form.addEventListener("input", ({ target }) => {
  if (["name", "description"].includes(target.name)) return;
  clearTimeout(timer);
  timer = setTimeout(load, WAIT_MS);
});
