// Shared by the suites: the gateway and the browser of a suite, keys that the console makes, and requests with them.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { launch } from "./browser.mjs";
import { start } from "./gateway.mjs";
import { setUp } from "./owner.mjs";

// They run from the first test of a suite to its last one.
export let gateway;
export let browser;

// Starts both before the tests. `environment` returns further variables of the gateway, `prepare` makes what all tests need; a suite that
// tests the first run does the set-up itself.
export function useGateway({ environment = () => ({}), isSetUp = true, prepare = () => {} } = {}) {
  before(async () => {
    [gateway, browser] = await Promise.all([start(await environment()), launch()]);
    if (isSetUp) await setUp(browser, gateway);
    await prepare();
  });
  after(async () => {
    await browser?.close();
    await gateway?.stop();
  });
}

// Makes a key on its page and returns its secret. `fill` fills in more fields than the name.
export async function makeKey(page, name, fill = () => {}) {
  await page.goto(`${gateway.base}/keys/new`);
  await page.locator("#name").fill(name);
  await fill();
  await page.locator("main button.primary").click();
  await page.getByText("The key is ready").waitFor();
  return page.locator("code.input").first().textContent();
}

// Sends a chat request with a key and returns its id.
export async function chat(key, body) {
  const answer = await fetch(`${gateway.base}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "acme-large", ...body }),
  });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return answer.headers.get("x-request-id");
}
