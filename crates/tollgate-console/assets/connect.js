// The test of a key: sends one small request with it over the protocol whose lines are shown, and shows the answer, or why there is none.
// The secret stays in its field and in the request.
import { codecs, events, newAnswer } from "./playground-protocols.js";

const LONGEST_MS = 60_000;
const MAX_SHOWN = 300;

const form = document.querySelector("[data-key-test]");
const field = form?.querySelector("input");
const result = form?.querySelector("[data-result]");
const button = form?.querySelector("button");
// Disabled until now: a form that is sent without this script only loads the page again.
if (button) button.disabled = false;

function show(name, { time = "", text = "", id } = {}) {
  const banner = form.querySelector(`[data-banner="${name}"]`).content.firstElementChild.cloneNode(true);
  const fill = (part, value) => { const place = banner.querySelector(part); if (place) place.textContent = value; };
  fill("[data-time]", time);
  fill("[data-text]", text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text);
  const record = banner.querySelector("[data-record]");
  if (record && id) record.href = form.dataset.log + encodeURIComponent(id);
  else record?.remove();
  result.replaceChildren(banner);
}

// The request of the chosen protocol; that of the first one if none is.
function request(key) {
  const word = form.closest("section").querySelector("input[name=protocol]:checked")?.value;
  const { dataset } = form.querySelector(word ? `[data-protocol="${word}"]` : "[data-protocol]");
  const headers = { ...JSON.parse(dataset.headers), "content-type": "application/json", [dataset.credential]: dataset.prefix + key };
  return { protocol: dataset.protocol, address: dataset.address, options: { method: "POST", headers, body: dataset.body, credentials: "omit" } };
}

async function send(key) {
  const { protocol, address, options } = request(key);
  const began = performance.now();
  const response = await fetch(address, { ...options, signal: AbortSignal.timeout(LONGEST_MS) });
  const answer = newAnswer();
  for await (const event of events(response, () => {})) codecs[protocol].take(answer, event);
  const id = response.headers.get("x-request-id");
  if (!response.ok || answer.error) return show("refused", { time: `HTTP ${response.status}`, text: answer.error, id });
  return show("answered", { time: `${Math.round(performance.now() - began)} ms`, text: answer.text, id });
}

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (button.disabled) return;
  const key = field.value.trim();
  // Other characters cannot be in a header.
  if (!/^[!-~]+$/.test(key)) return show("refused", { text: form.dataset.wrong });
  button.disabled = true;
  show("waiting");
  await send(key).catch(() => show("lost"));
  button.disabled = false;
});
