// Pages that follow events while the gateway restarts: they show that the connection is lost, and continue when it is
// back.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { VIEWS, openPage } from "./browser.mjs";
import { asOwner, callApi, signIn } from "./owner.mjs";
import { browser, chat, gateway, makeKey, useGateway } from "./suite.mjs";

// Storage that never answers, so that a job waits for it.
const silent = createServer(() => {});

useGateway({
  environment: async () => {
    await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
    const settings = { endpoint: `http://127.0.0.1:${silent.address().port}`, bucket: "b", access_key_id: "a", secret_access_key: "s", private_network: "true" };
    return Object.fromEntries(Object.entries(settings).map(([name, value]) => [`TOLLGATE_EXPORT__${name.toUpperCase()}`, value]));
  },
});
after(() => {
  silent.closeAllConnections();
  silent.close();
});

const HELLO = { messages: [{ role: "user", content: "Hello" }] };

test("the log and the first steps continue after a restart of the gateway", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults, context) => {
    const log = page;
    const key = await makeKey(log, "restart");
    const steps = await context.newPage();
    await steps.goto(`${gateway.base}/console`);
    await steps.getByText("Waiting for the first request").waitFor();
    await steps.evaluate(() => { window.kept = true; });
    await log.goto(`${gateway.base}/log?range=15m&follow=1`);
    await log.getByRole("button", { name: "Live" }).waitFor();
    await log.evaluate(() => { window.kept = true; });

    await gateway.end("SIGTERM");
    await log.locator("[data-follow]", { hasText: "Connection lost" }).waitFor();
    await steps.getByText("Connection lost, trying again").waitFor();
    const follow = log.locator("[data-follow]");
    for (const says of ["Paused", "Connection lost"]) {
      await follow.click();
      await follow.filter({ hasText: says }).waitFor();
    }
    await gateway.startAgain();
    await log.getByRole("button", { name: "Live" }).waitFor();
    await steps.getByText("Waiting for the first request").waitFor();

    await chat(key, HELLO);
    await steps.getByText("The first request was answered.").waitFor();
    await log.locator("[data-record]").first().waitFor();
    for (const open of [log, steps]) assert.ok(await open.evaluate(() => window.kept), "it continues without being reloaded");

    await follow.click();
    await follow.filter({ hasText: "Paused" }).waitFor();
    await gateway.end("SIGTERM");
    await gateway.startAgain();
    await chat(key, HELLO);
    await log.locator("[data-new]", { hasText: "1 new" }).waitFor({ timeout: 60_000 });
  });
});

for (const signal of ["SIGTERM", "SIGKILL"]) {
  test(`the page of a job shows that it ended after a restart by ${signal}`, async () => {
    const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en" });
    await signIn(page, gateway);
    const job = await callApi(page, "POST", "/admin/v1/jobs", { kind: "doctor" });
    await page.goto(`${gateway.base}/system/jobs/${job.id}`);
    await page.locator("[data-live]:not(.paused)").waitFor();
    await gateway.end(signal);
    await page.locator("[data-live].paused").waitFor();
    await gateway.startAgain();
    // Jobs are kept in the memory of the process.
    await page.getByText("The gateway does not know this job").waitFor();
    assert.ok(page.url().startsWith(gateway.base));
    await context.close();
  });
}
