// The console below a path of another host's address: behind a proxy that removes the path, and behind one that leaves it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { VIEWS, checkPage, launch, openPage } from "./browser.mjs";
import { start } from "./gateway.mjs";
import { setPassword, signIn } from "./owner.mjs";
import { PREFIX, startProxy } from "./proxy.mjs";

let browser;

before(async () => { browser = await launch(); });
after(() => browser?.close());

// Addresses in a page that lead out of the path: of links, forms, assets, and in attributes that scripts read. Those of other hosts are
// for people.
const leadingOut = (page) => page.evaluate((prefix) => {
  const attributes = [...document.querySelectorAll("*")].flatMap((element) => [...element.attributes]);
  const isPath = ({ name, value }) => /^\/[a-z]/.test(value) && !["value", "data-copy", "title", "placeholder", "data-reloads-from"].includes(name);
  const own = attributes.filter(isPath).filter(({ value }) => value !== prefix && !value.startsWith(`${prefix}/`));
  const hosts = attributes.filter(({ name, value }) => ["href", "src", "action"].includes(name) && value.startsWith(location.origin));
  const left = hosts.filter(({ value }) => !value.startsWith(location.origin + prefix));
  return [...own, ...left].map(({ name, value, ownerElement }) => `${ownerElement.tagName} ${name}="${value}"`);
}, PREFIX);

async function withGateway(removes, use) {
  const proxy = await startProxy({ removes });
  const gateway = await start({ TOLLGATE_CONSOLE__URL: proxy.base });
  proxy.forwardTo(gateway.base);
  try {
    await use({ ...gateway, base: proxy.base }, proxy);
  } finally {
    proxy.stop();
    await gateway.stop();
  }
}

async function openEveryPage(page, gateway, faults) {
  await page.goto(`${gateway.base}/console`);
  const links = await page.locator("nav.side a[href]").evaluateAll((all) => all.map((link) => link.href));
  assert.ok(links.length > 15, links.join());
  for (const link of [...links, `${gateway.base}/channels/new`, `${gateway.base}/channels/chat`, `${gateway.base}/no-such-page`]) {
    const answer = await page.goto(link);
    assert.equal(answer.status(), link.endsWith("no-such-page") ? 404 : 200, link);
    assert.ok(link.startsWith(`${gateway.base}/`) && page.url().startsWith(`${gateway.base}/`), link);
    assert.deepEqual(await leadingOut(page), [], link);
  }
  await checkPage(page, faults, "a page below a path");
}

// A key by its form, which is turned off and on again by the message, and shown beside the log.
async function useForms(page, gateway) {
  await page.goto(`${gateway.base}/keys/new`);
  await page.locator("#name").fill("below a path");
  await page.locator("main button.primary").click();
  await page.getByText("The key is ready").waitFor();
  const key = await page.locator("code.input").first().textContent();
  await page.getByText(`${gateway.base}/v1`).first().waitFor();
  await page.reload();
  assert.match(new URL(page.url()).pathname, /^\/gate\/keys\/key_/, "a reloaded answer to a form is a page");
  await page.goto(`${gateway.base}/keys?search=below`);
  await page.locator("tbody a").first().click();
  await page.getByRole("button", { name: "Switch off" }).click();
  await page.getByText("The key is off.").waitFor();
  await page.getByRole("button", { name: "Undo" }).click();
  await page.getByText("The key is on.").waitFor();
  await page.locator(".foot select[name=language]").selectOption("zh-CN");
  await page.locator("html[lang=zh-CN]").waitFor();
  assert.match(new URL(page.url()).pathname, /^\/gate\/keys\/key_/, "the form of the language returns to the page");
  await page.locator(".foot select[name=language]").selectOption("en");
  await page.locator("html[lang=en]").waitFor();
  return key;
}

async function useParts(page, gateway) {
  await page.goto(`${gateway.base}/models`);
  await page.evaluate(() => { window.kept = true; });
  await page.getByLabel("Free").check();
  await page.waitForURL(/\/gate\/models\?.*free=1/);
  assert.ok(await page.evaluate(() => window.kept), "htmx changes a part of the page");
  await page.keyboard.press("Control+k");
  await page.locator("dialog.palette .hits a").first().waitFor();
  await page.keyboard.type("Groups");
  await page.locator("dialog.palette .hits a", { hasText: "Groups" }).first().click();
  await page.waitForURL("**/gate/groups");
  await page.keyboard.press("?");
  await page.locator("dialog #shortcuts").waitFor();
  await page.keyboard.press("Escape");
}

// The first steps are complete once a request arrives, and the log shows new records.
async function followEvents(page, gateway, key) {
  const chat = async () => {
    const answer = await fetch(`${gateway.base}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "acme-large", messages: [{ role: "user", content: "Hello" }] }),
    });
    assert.equal(answer.status, 200, await answer.text());
  };
  await page.goto(`${gateway.base}/console`);
  await page.getByText("Waiting for the first request").waitFor();
  await chat();
  await page.getByText("The first request was answered.").waitFor();
  await page.goto(`${gateway.base}/log?range=15m&follow=1`);
  await page.getByRole("button", { name: "Live" }).waitFor();
  const records = await page.locator("[data-record]").count();
  await chat();
  await page.waitForFunction((count) => document.querySelectorAll("[data-record]").length === count + 1, records);
  await page.locator("[data-record]").first().click();
  await page.locator(".drawer[data-open]").waitFor();
  assert.deepEqual(await leadingOut(page), [], "the drawer of a record");
}

async function usePlayground(page, gateway) {
  await page.goto(`${gateway.base}/playground?model=acme-large`);
  await Promise.all([page.waitForResponse("**/gate/v1/key"), page.locator("[data-make-key]").click()]);
  for (const protocol of ["Chat", "Gemini", "Messages", "Responses"]) {
    await page.locator(".protocols label", { hasText: protocol }).click();
    await page.locator("#message").fill(`Say hello over ${protocol}.`);
    await page.locator("#message").press("Control+Enter");
    await page.locator(".you", { hasText: `Say hello over ${protocol}.` }).waitFor();
    await page.locator("[data-state].ok:not([hidden])").waitFor();
    await page.locator("[data-cost]").first().filter({ hasText: "$" }).waitFor();
  }
}

for (const [removes, what] of [[true, "removes"], [false, "leaves"]]) {
  test(`the console works below a path that the proxy ${what}`, async () => {
    await withGateway(removes, async (gateway, proxy) => {
      const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
      assert.ok(gateway.setupLink.startsWith(`${gateway.base}/setup?`), gateway.setupLink);
      await setPassword(page, gateway);
      await page.goto(`${gateway.base}/profile`);
      await page.getByRole("button", { name: "Sign out" }).click();
      await page.waitForURL("**/gate/sign-in");
      await page.goto(gateway.base);
      await page.waitForURL("**/gate/models");
      await page.goto(`${gateway.base}/profile?a=1`);
      await page.waitForURL("**/gate/sign-in?to=**");
      await signIn(page, gateway);
      await openEveryPage(page, gateway, faults);
      const key = await useForms(page, gateway);
      await useParts(page, gateway);
      await followEvents(page, gateway, key);
      await usePlayground(page, gateway);
      await page.goto(`${gateway.base}/profile`);
      await page.getByRole("button", { name: "Sign out" }).click();
      await page.waitForURL("**/gate/sign-in");
      await page.getByText("You are signed out.").waitFor();
      assert.deepEqual(proxy.outside, [], "requests that were not below the path");
      assert.deepEqual(faults, []);
      await context.close();
    });
  });
}
