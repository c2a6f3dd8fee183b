// Reloads a part of the page periodically while the page is visible: <div id="part" data-refresh="address">. Elements that are
// under the pointer, focused, opened or chosen are not replaced.
const SECONDS = 30;

function isInUse(part) {
  return document.hidden || part.matches(":hover") || part.contains(document.activeElement) || part.querySelector("details[open], [data-choice]:checked") || document.querySelector("dialog[open], .menu-down[open]");
}

async function refresh() {
  const part = document.querySelector("[data-refresh]");
  if (!part || isInUse(part)) return;
  const answer = await fetch(part.dataset.refresh, { headers: { "hx-request": "true" } }).catch(() => undefined);
  const signIn = answer?.status === 401 && answer.headers.get("hx-redirect");
  if (signIn) location.assign(signIn);
  if (!answer?.ok || answer.redirected || isInUse(part)) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(part.id);
  if (!fresh) return;
  part.replaceWith(fresh);
  document.dispatchEvent(new CustomEvent("rows:new"));
}

if (document.querySelector("[data-refresh]")) setInterval(refresh, SECONDS * 1000);
