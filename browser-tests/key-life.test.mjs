// The life of a key: made with limits, used, changed, replaced, switched off and on, and revoked; by mouse, and by keyboard alone. Requests
// show the effect of each step.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, screenshot } from "./browser.mjs";
import { asOwner } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";

useGateway();

// The status of a request with a key, and the error's code.
async function send(key) {
  const answer = await fetch(`${gateway.base}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "acme-large", messages: [{ role: "user", content: "Say hello." }] }),
  });
  const { error } = await answer.json();
  return { status: answer.status, code: error?.code };
}

test("a key is made, used, replaced, switched off and on, and revoked", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/keys/new`);
    await page.locator("#name").fill("life");
    await page.getByText("More options").click();
    await page.locator("#rpm").fill("0");
    await page.locator("#concurrency").fill("0");
    await page.locator("main button.primary").click();
    await page.getByText("Enter a whole number above 0").first().waitFor();
    assert.equal(await page.locator("#rpm[aria-invalid], #concurrency[aria-invalid]").count(), 2, "0 is no limit, in both fields");
    assert.equal(await page.locator("#name").inputValue(), "life");
    await page.locator("#rpm").fill("600");
    await page.locator("#concurrency").fill("");
    await page.locator("main button.primary").click();
    await page.getByText("The key is ready").waitFor();
    const first = await page.locator("code.input").first().textContent();
    assert.equal((await send(first)).status, 200);

    await page.goto(`${gateway.base}/keys?search=life`);
    await page.locator("tbody a", { hasText: "life" }).first().click();
    await page.locator("#overlap_s").selectOption("0");
    await page.getByRole("button", { name: "Replace the key" }).click();
    await page.getByText("The key is ready").waitFor();
    const second = await page.locator("code.input").first().textContent();
    assert.notEqual(second, first);
    assert.equal((await send(first)).status, 401, "the former key ends at once");
    assert.equal((await send(second)).status, 200);

    await page.goto(`${gateway.base}/keys?search=life`);
    await page.locator("tbody a", { hasText: "life" }).first().click();
    await page.getByRole("button", { name: "Switch off" }).click();
    await page.getByText("The key is off.").waitFor();
    const off = await send(second);
    assert.ok(off.status === 401 || off.status === 403, JSON.stringify(off));
    await page.getByRole("button", { name: "Switch on" }).click();
    await page.getByText("The key is on.").waitFor();
    assert.equal((await send(second)).status, 200);

    await page.locator("summary", { hasText: "Revoke" }).click();
    await page.locator("#typed_name").fill("lif");
    await page.getByRole("button", { name: "Revoke for good" }).click();
    await page.locator("#typed_name[aria-invalid]").waitFor();
    assert.equal((await send(second)).status, 200, "a wrong name revokes nothing");
    await checkPage(page, faults, "key, about to be revoked");
    await screenshot(page, "key-life-revoking.light");
    await page.locator("#typed_name").fill("life");
    await page.getByRole("button", { name: "Revoke for good" }).click();
    await page.getByText("The key is revoked.").waitFor();
    assert.equal((await send(second)).status, 401);

    await page.goto(`${gateway.base}/keys?search=life`);
    assert.equal(await page.locator("tbody a", { hasText: "life" }).count(), 0, "revoked keys are not listed");
    await page.goto(`${gateway.base}/keys?search=life&revoked=true`);
    await page.locator("tbody a", { hasText: "life" }).first().click();
    await page.getByText("Revoked").first().waitFor();
    assert.equal(await page.getByRole("button", { name: "Switch on" }).count(), 0, "it is revoked for good");
    await checkPage(page, faults, "key, revoked");
    await screenshot(page, "key-life-revoked.light");
    // Its requests remain in the log, with the names of the key and of its member.
    for (let tries = 0; tries < 50 && await page.locator("[data-record]").count() < 3; tries += 1) {
      await page.goto(`${gateway.base}/log?range=15m&key=life&outcome=completed`);
    }
    assert.ok(await page.locator("[data-record]").count() >= 3);
    await page.locator("tbody td", { hasText: "life" }).first().getByText("owner").waitFor();
    await checkPage(page, faults, "log of a revoked key");
    await screenshot(page, "key-life-log.light");
  });
});

// Presses Tab until the element has the focus.
async function tabTo(page, element) {
  await element.waitFor();
  for (let presses = 0; presses < 150; presses += 1) {
    if (await element.evaluate((node) => node === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`the keyboard does not reach ${element}`);
}

test("a key is made, replaced and revoked by keyboard alone", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    const press = async (element) => {
      await tabTo(page, element);
      await page.keyboard.press("Enter");
    };
    const open = async () => {
      await page.waitForLoadState();
      await page.keyboard.press("g");
      await page.keyboard.press("k");
      await page.waitForURL(/\/keys$/);
      await press(page.getByRole("link", { name: "by-keyboard", exact: true }));
    };
    const made = async () => {
      await page.getByText("The key is ready").waitFor();
      return page.locator("code.input").first().textContent();
    };
    await page.goto(`${gateway.base}/keys`);
    await press(page.getByRole("link", { name: "New key" }).first());
    await page.locator("#name:focus").waitFor();
    await page.keyboard.type("by-keyboard");
    await page.keyboard.press("Enter");
    const first = await made();
    assert.equal((await send(first)).status, 200);

    await open();
    const overlap = page.locator("#overlap_s");
    await tabTo(page, overlap);
    await page.keyboard.press("Home");
    for (let options = 0; options < 10 && await overlap.inputValue() !== "0"; options += 1) await page.keyboard.press("ArrowDown");
    await press(page.getByRole("button", { name: "Replace the key" }));
    const second = await made();
    assert.equal((await send(first)).status, 401);
    assert.equal((await send(second)).status, 200);

    await open();
    await press(page.locator("summary", { hasText: "Revoke" }));
    await tabTo(page, page.locator("#typed_name"));
    await page.keyboard.type("by-keyboard");
    await page.keyboard.press("Enter");
    await page.getByText("The key is revoked.").waitFor();
    assert.equal((await send(second)).status, 401);
  });
});
