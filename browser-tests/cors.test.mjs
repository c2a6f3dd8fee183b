// A page of another origin that calls the model API: the browser decides what it may send and read.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { VIEWS, checkPage, openPage, screenshot } from "./browser.mjs";
import { setPassword, signIn } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";

let site;
let origin;

before(async () => {
  site = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<!doctype html><title>App</title>"));
  await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${site.address().port}`;
});

useGateway({ isSetUp: false });

after(() => site?.close());

// The part of an answer that a script of the page can read.
function ask(page, path, key, body) {
  return page.evaluate(async ([url, bearer, sent]) => {
    const headers = bearer ? { authorization: `Bearer ${bearer}`, "x-stainless-lang": "js" } : {};
    if (sent) headers["content-type"] = "application/json";
    try {
      const answer = await fetch(url, { method: sent ? "POST" : "GET", headers, body: sent && JSON.stringify(sent) });
      return { status: answer.status, id: answer.headers.get("x-request-id"), text: await answer.text() };
    } catch (error) {
      return { refused: error.name };
    }
  }, [gateway.base + path, key, body]);
}

test("a page of a named origin lists models and streams, and no other page does", async () => {
  const owner = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await setPassword(owner.page, gateway);
  await owner.page.goto(`${gateway.base}/keys/new`);
  await owner.page.locator("#name").fill("page");
  await owner.page.keyboard.press("Enter");
  await owner.page.getByText("The key is ready").waitFor();
  const key = await owner.page.locator("code.input").textContent();

  const app = await browser.newContext();
  const page = await app.newPage();
  await page.goto(origin);
  assert.deepEqual(await ask(page, "/v1/models", key), { refused: "TypeError" }, "no origin is allowed without the setting");

  await owner.page.goto(`${gateway.base}/settings/server.cors_origins`);
  await owner.page.locator("#value").fill(`${origin}/app`);
  await owner.page.keyboard.press("Enter");
  await owner.page.getByText("Enter origins separated by commas").waitFor();
  await checkPage(owner.page, owner.faults, "setting of origins, refused");
  await screenshot(owner.page, "setting-origins.light");
  await owner.page.locator("#value").fill(`https://app.example.com, ${origin}`);
  await owner.page.keyboard.press("Enter");
  await owner.page.locator(".toast").first().waitFor();

  const models = await ask(page, "/v1/models", key);
  assert.equal(models.status, 200);
  assert.ok(models.id?.startsWith("req_") && models.text.includes("acme-large"), JSON.stringify(models));
  const body = { model: "acme-large", stream: true, messages: [{ role: "user", content: "Say hello." }] };
  const streamed = await ask(page, "/v1/chat/completions", key, body);
  assert.equal(streamed.status, 200);
  assert.ok(streamed.text.trimEnd().endsWith("data: [DONE]"), streamed.text);
  assert.equal((await ask(page, "/v1/models", "sk-tg-wrong")).status, 401, "a page reads errors");
  assert.equal((await ask(page, "/v1/key", key)).status, 200);
  for (const path of ["/admin/v1/me", "/healthz"]) assert.deepEqual(await ask(page, path), { refused: "TypeError" }, path);

  const other = await app.newPage();
  await other.goto(origin.replace("127.0.0.1", "localhost"));
  assert.deepEqual(await ask(other, "/v1/models", key), { refused: "TypeError" }, "another origin");
  await app.close();
  await owner.context.close();
});

test("lists of addresses are set on their pages and described in both languages", async () => {
  for (const [view, locale] of [["light", "en"], ["dark", "zh-CN"], ["phone", "zh-CN"]]) {
    const { context, page, faults } = await openPage(browser, { ...VIEWS[view], locale });
    await signIn(page, gateway);
    await page.goto(`${gateway.base}/settings?q=addresses`);
    await page.getByText("upstream.denied_addresses").first().waitFor();
    await checkPage(page, faults, `settings of addresses, ${view}`);
    await screenshot(page, `settings-addresses.${view}.${locale}`);
    await page.goto(`${gateway.base}/settings/upstream.denied_addresses`);
    await page.locator("#value").fill("10.0.0.0/99");
    await page.keyboard.press("Enter");
    await page.getByText(locale === "en" ? "Enter networks or addresses" : "请输入以逗号分隔的网段或地址").waitFor();
    await checkPage(page, faults, `setting of addresses, refused, ${view}`);
    await screenshot(page, `setting-addresses.${view}.${locale}`);
    await context.close();
  }
});
