// Stored contents of a request: switched on, read as messages and as they were sent, gone on with in the playground, and removed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, screenshot } from "./browser.mjs";
import { asOwner } from "./owner.mjs";
import { browser, chat, gateway, makeKey, useGateway } from "./suite.mjs";

let record;

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
      });
    });
  }
}

test("a conversation goes on in the playground, and its contents are removed", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/log/${record}/contents`);
    await page.getByRole("button", { name: "Continue in the playground" }).click();
    await page.waitForURL("**/playground");
    await page.locator(".you", { hasText: "What is on the picture?" }).waitFor();
    assert.equal(await page.locator("#system").inputValue(), "Answer in one line.");
    await checkPage(page, faults, "playground with a conversation of the log");
    await screenshot(page, "contents-continued.light");
    await page.goto(`${gateway.base}/log/${record}/contents`);
    await page.locator("summary", { hasText: "Remove body and answer" }).click();
    await page.getByLabel("Delete them for good").check();
    await page.locator("form button.danger").click();
    await page.getByText("Body and answer were removed.").waitFor();
    assert.equal(await page.getByRole("link", { name: "Show body and answer" }).count(), 0);
  });
});
