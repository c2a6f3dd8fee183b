// Parts of a page that are slow or fail: a placeholder, and then in its place the error and a button to retry.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, screenshot } from "./browser.mjs";
import { asOwner } from "./owner.mjs";
import { browser, chat, gateway, makeKey, useGateway } from "./suite.mjs";

useGateway();

const isPart = (request) => request.headers()["hx-request"] === "true";

test("a slow part shows a placeholder, and a failed one shows the error in its place", async () => {
  for (const [view, options] of Object.entries(VIEWS)) {
    await asOwner(browser, gateway, options, async (page, faults) => {
      let answer = "slow";
      await page.route("**/models*", async (route) => {
        if (!isPart(route.request())) return route.continue();
        if (answer === "slow") await new Promise((resolve) => setTimeout(resolve, 700));
        if (answer === "broken") return route.abort();
        return route.continue();
      });
      await page.goto(`${gateway.base}/models`);
      const facet = page.locator("#facets input[type=checkbox]").first();
      const change = () => facet.evaluate((field) => field.dispatchEvent(new Event("change", { bubbles: true })));
      await change();
      await page.locator("#found .part-loading").waitFor();
      assert.equal(await page.locator("#found").getAttribute("aria-busy"), "true");
      await page.locator("#found .part-loading").waitFor({ state: "detached" });
      answer = "broken";
      await change();
      await page.locator("#found [role=alert]", { hasText: "No answer" }).waitFor();
      await checkPage(page, faults.filter((fault) => !fault.includes("Failed to load") && !fault.includes("fetch")), `a failed part, ${view}`);
      await screenshot(page, `part-failed.${view}`);
      answer = "well";
      await page.locator("[data-part-again]").first().click();
      await page.locator("#found [role=alert]").waitFor({ state: "detached" });
    });
  }
});

test("a record that cannot be shown has the error in the drawer, with the request id", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    const key = await makeKey(page, "parts");
    await chat(key, { messages: [{ role: "user", content: "hi" }] });
    const record = page.locator("a[data-record]").first();
    for (let tries = 0; tries < 50 && await record.count() === 0; tries += 1) {
      await page.waitForTimeout(100);
      await page.goto(`${gateway.base}/log`);
    }
    await record.evaluate((link) => link.setAttribute("hx-get", link.getAttribute("hx-get").replace(/req_[0-9a-z]+/, "req_unknown")));
    await record.click();
    await page.locator("#drawer [role=alert] [data-copy^=req_]").waitFor();
    await page.locator("#drawer [data-close]").click();
    await page.locator("#drawer [role=alert]").waitFor({ state: "detached" });
  });
});

test("an error page shows what went wrong, and copies its request id", async () => {
  await asOwner(browser, gateway, { ...VIEWS.light, permissions: ["clipboard-read", "clipboard-write"] }, async (page, faults) => {
    await page.goto(`${gateway.base}/keys/key_unknown`);
    const copy = page.locator("main [data-copy^=req_]");
    await copy.click();
    await page.locator("#toasts .toast").waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), await copy.getAttribute("data-copy"));
    assert.ok(!(await page.locator(".code-page > p").first().textContent()).includes("req_"));
    await checkPage(page, faults, "page of an error");
  });
});

// Over plain HTTP on another host browsers have no clipboard for pages.
const withoutClipboard = (page) => page.addInitScript(() => {
  Object.defineProperty(Navigator.prototype, "clipboard", { get: () => undefined });
});

test("copying works without the clipboard of secure pages, and else leaves the text selected", async () => {
  for (const view of ["light", "phone"]) {
    await asOwner(browser, gateway, VIEWS[view], async (page, faults) => {
      await withoutClipboard(page);
      await page.goto(`${gateway.base}/keys/key_unknown`);
      const copy = page.locator("main [data-copy^=req_]");
      const text = await copy.getAttribute("data-copy");
      await copy.click();
      await page.locator("#toasts .toast", { hasText: "Copied" }).waitFor();
      assert.equal(await page.locator("textarea").count(), 0);
      await page.goto(`${gateway.base}/keys`);
      const search = page.locator("#search");
      await search.evaluate((field) => field.focus());
      await page.keyboard.press("Control+V");
      assert.equal(await search.evaluate((field) => field.value), text);

      await page.goto(`${gateway.base}/keys/key_unknown`);
      await page.evaluate(() => { document.execCommand = () => false; });
      const other = await copy.getAttribute("data-copy");
      await copy.click();
      await page.locator("#toasts .toast", { hasText: "The text is selected" }).waitFor();
      const selected = await page.evaluate(() => {
        const { value, selectionStart, selectionEnd } = document.activeElement;
        return value.slice(selectionStart, selectionEnd);
      });
      assert.equal(selected, other);
      await checkPage(page, faults, `text to copy, ${view}`);
      await screenshot(page, `copy-by-hand.${view}`);
      await page.locator("main a").first().focus();
      await page.locator("#toasts .toast").waitFor({ state: "detached" });
    });
  }
});

// The error that a script shows if its part cannot be fetched, and the result of its button.
async function fails(page, faults, name, { route, ask, part }) {
  let isBroken = true;
  await page.route(route, (asked) => (isBroken && isPart(asked.request()) ? asked.abort() : asked.continue()));
  await ask();
  const alert = page.locator(`${part} [role=alert]`, { hasText: "No answer" });
  await alert.waitFor();
  await checkPage(page, faults.filter((fault) => !fault.includes("Failed to load") && !fault.includes("fetch")), name);
  await screenshot(page, `${name.replaceAll(" ", "-")}`);
  isBroken = false;
  await alert.getByRole("button", { name: "Try again" }).click();
  await alert.waitFor({ state: "detached" });
  await page.unroute(route);
}

test("a part that a script loads shows its error, and is requested again", async () => {
  await asOwner(browser, gateway, { ...VIEWS.light, intercepts: true }, async (page, faults) => {
    await page.clock.install();
    for (const [path, part] of [["/overview", "#part .tiles"], ["/channels", "#part table"]]) {
      await page.goto(gateway.base + path);
      await page.locator(".live", { hasText: "Live" }).waitFor();
      await page.locator(part).first().hover();
      await page.clock.fastForward(1000);
      await page.locator(".live.paused", { hasText: "Paused" }).waitFor();
      await page.mouse.move(0, 0);
    }
    await fails(page, faults, "channels not refreshed", {
      route: "**/channels*", part: "#part", ask: () => page.clock.fastForward(31_000),
    });
    await page.locator("#part table").waitFor();
  });
  await asOwner(browser, gateway, { ...VIEWS.light, intercepts: true }, async (page, faults) => {
    await page.goto(`${gateway.base}/log`);
    await fails(page, faults, "log not followed", {
      route: "**/log?*", part: "#rows", ask: () => page.getByRole("button", { name: "Follow" }).click(),
    });
    await page.getByRole("button", { name: "Live" }).waitFor();
    await fails(page, faults, "search without an answer", {
      route: "**/search", part: "dialog", ask: () => page.keyboard.press("Control+k"),
    });
    await page.locator("dialog .hits li").first().waitFor();
    await page.keyboard.press("Escape");
    await page.locator("dialog").waitFor({ state: "detached" });
    await fails(page, faults, "shortcuts without an answer", {
      route: "**/shortcuts", part: "dialog", ask: () => page.keyboard.press("?"),
    });
    await page.locator("dialog #shortcuts").waitFor();
  });
});

// Types two searches, of which the first is answered last. `ends` says how each of them ends: "abort" or "continue".
async function searchTwice(page, ends) {
  let release;
  const held = new Promise((resolve) => { release = resolve; });
  const [first, second] = Object.keys(ends);
  const asks = (request) => new URLSearchParams(request.postData() ?? "").get("q");
  await page.route("**/search", async (route) => {
    const asked = asks(route.request());
    if (asked === first) await held;
    return route[ends[asked] ?? "continue"]();
  });
  await page.goto(`${gateway.base}/log`);
  await page.keyboard.press("Control+k");
  await page.locator("dialog .hits li").first().waitFor();
  const field = page.locator("dialog input");
  const sent = page.waitForRequest((request) => asks(request) === first);
  await field.fill(first);
  await sent;
  const ended = (asked) => new Promise((resolve) => {
    for (const name of ["requestfinished", "requestfailed"]) page.on(name, (request) => { if (asks(request) === asked) resolve(); });
  });
  const [firstEnded, secondEnded] = [ended(first), ended(second)];
  await field.fill(second);
  await secondEnded;
  await page.locator(ends[second] === "abort" ? "dialog [role=alert]" : "dialog .hits").first().waitFor();
  release();
  await firstEnded;
  // The script processes the answer before a later task of the page.
  await page.evaluate(() => new Promise((resolve) => { setTimeout(resolve, 100); }));
  await page.unroute("**/search");
}

test("an older search that is answered late neither covers newer results nor clears a newer fault", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await searchTwice(page, { key: "abort", keys: "continue" });
    assert.equal(await page.locator("dialog [role=alert]").count(), 0);
    await page.locator("dialog .hits", { hasText: "Keys" }).waitFor();
    await searchTwice(page, { model: "continue", models: "abort" });
    assert.equal(await page.locator("dialog [role=alert]", { hasText: "No answer" }).count(), 1);
  });
});

test("the playground shows that it could not read a model's prices", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    let isBroken = true;
    await page.route("**/models.json*", (route) => (isBroken ? route.abort() : route.continue()));
    await page.goto(`${gateway.base}/playground`);
    const alert = page.locator(".answer [role=alert]", { hasText: "No answer" });
    await alert.waitFor();
    await screenshot(page, "playground-without-prices");
    isBroken = false;
    await alert.getByRole("button", { name: "Try again" }).click();
    await alert.waitFor({ state: "detached" });
  });
});
