// Stored contents of a request: switched on, read as messages and in the original form, continued in the playground, and removed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, screenshot } from "./browser.mjs";
import { asOwner } from "./owner.mjs";
import { browser, chat, gateway, makeKey, useGateway } from "./suite.mjs";

let record;
// A record whose caller and upstream speak different protocols.
let translated;

useGateway();

test("contents are switched on for a key, and read beside the record", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/settings/contents.store`);
    await page.locator("#value").selectOption("true");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved", { exact: true }).waitFor();
    await page.goto(`${gateway.base}/overview`);
    await page.getByText("Bodies and answers of requests are stored").waitFor();
    await checkPage(page, faults, "overview, contents are stored");
    const key = await makeKey(page, "logged", async () => {
      await page.locator("#log_contents").evaluate((element) => element.closest("details")?.setAttribute("open", ""));
      await page.locator("#log_contents").selectOption("true");
    });
    record = await chat(key, { stream: true, messages: [
      { role: "system", content: "Answer in one line." },
      { role: "user", content: "What is on the picture?\n<script>alert(1)</script>" },
    ] });
    for (let tries = 0; tries < 100; tries += 1) {
      await page.goto(`${gateway.base}/log/${record}`);
      if (await page.getByRole("link", { name: "Show body and answer" }).count()) break;
      await page.waitForTimeout(200);
    }
    await page.getByRole("link", { name: "Show body and answer" }).click();
    await page.getByRole("heading", { name: "Messages" }).waitFor();
    assert.equal(await page.locator(".messages > li").count(), 3);
    await page.getByText("<script>alert(1)</script>").first().waitFor();
    const answer = await fetch(`${gateway.base}/v1/messages`, {
      method: "POST",
      headers: { "x-api-key": key, "anthropic-version": "2023-06-01", "content-type": "application/json" },
      body: JSON.stringify({
        model: "acme-large", max_tokens: 64, stop_sequences: ["END"], temperature: 0.5, metadata: { user_id: "u-1" }, stream: true,
        messages: [{ role: "user", content: "<b>Hello</b>" }],
      }),
    });
    assert.equal(answer.status, 200, await answer.text());
    translated = answer.headers.get("request-id") ?? answer.headers.get("x-request-id");
    for (let tries = 0; tries < 100; tries += 1) {
      await page.goto(`${gateway.base}/log/${translated}`);
      if (await page.getByRole("link", { name: "Show body and answer" }).count()) break;
      await page.waitForTimeout(200);
    }
    await page.getByRole("link", { name: "Translation" }).click();
    await page.getByRole("heading", { name: /The upstream was sent/ }).waitFor();
    const row = page.getByRole("row", { name: /stop_sequences/ });
    assert.match(await row.innerText(), /renamed\s+stop/);
    assert.match(await page.locator("pre.marked span.info").first().innerText(), /→.*stop_sequences/);
    await page.getByText('"stop": [').waitFor();
    await checkPage(page, faults, "translation");
    // A request without stored contents shows the reason.
    const plain = await chat(await makeKey(page, "plain"), { messages: [{ role: "user", content: "Hi" }] });
    for (let tries = 0; tries < 100; tries += 1) {
      await page.goto(`${gateway.base}/log/${plain}`);
      if (await page.getByRole("link", { name: "Translation" }).count()) break;
      await page.waitForTimeout(200);
    }
    await page.getByRole("link", { name: "Translation" }).click();
    await page.getByText("neither its key nor its group").waitFor();
    await checkPage(page, faults, "translation, not kept");
    await screenshot(page, "translation-none.light");
  });
});

for (const [view, options] of Object.entries(VIEWS)) {
  for (const locale of ["en", "zh-CN"]) {
    test(`contents: ${view}, ${locale}`, async () => {
      await asOwner(browser, gateway, options, async (page, faults, context) => {
        await context.addCookies([{ name: "tollgate_language", value: locale, url: gateway.base }]);
        await page.goto(`${gateway.base}/log/${record}/contents`);
        await page.locator(".messages").waitFor();
        await checkPage(page, faults, `contents, ${view}, ${locale}`);
        await screenshot(page, `contents.${view}${locale === "en" ? "" : ".zh"}`);
        await page.goto(`${gateway.base}/log/${translated}/translation`);
        await page.locator(".marked").first().waitFor();
        await checkPage(page, faults, `translation, ${view}, ${locale}`);
        await screenshot(page, `translation.${view}${locale === "en" ? "" : ".zh"}`);
      });
    });
  }
}

test("a request is copied as a curl line without the clipboard of secure pages", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.addInitScript(() => Object.defineProperty(Navigator.prototype, "clipboard", { get: () => undefined }));
    await page.goto(`${gateway.base}/log/${record}/contents`);
    const copy = page.getByRole("button", { name: "Copy as curl" });
    const line = await copy.getAttribute("data-copy");
    await copy.click();
    await page.locator("#toasts .toast", { hasText: "Copied" }).waitFor();
    await page.evaluate(() => {
      const field = document.createElement("textarea");
      document.body.append(field);
      field.focus();
    });
    await page.keyboard.press("Control+V");
    assert.equal(await page.locator("body > textarea").inputValue(), line);
  });
});

test("a conversation continues in the playground, and its contents are removed", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/log/${record}/contents`);
    await page.getByRole("button", { name: "Continue in the playground" }).click();
    await page.waitForURL("**/playground");
    await page.locator(".you", { hasText: "What is on the picture?" }).waitFor();
    assert.equal(await page.locator("#system").inputValue(), "Answer in one line.");
    await checkPage(page, faults, "playground with a conversation of the log");
    await screenshot(page, "contents-continued.light");
    await page.goto(`${gateway.base}/log/${record}/contents`);
    await page.locator("summary", { hasText: "Delete body and answer" }).click();
    await page.getByLabel("Delete them for good").check();
    await page.locator("form button.danger").click();
    await page.getByText("Body and answer were deleted.").waitFor();
    assert.equal(await page.getByRole("link", { name: "Show body and answer" }).count(), 0);
  });
});
