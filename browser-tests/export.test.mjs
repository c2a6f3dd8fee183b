// The export of usage records on the page System: off, failing with advice, and done.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { VIEWS, checkPage, screenshot } from "./browser.mjs";
import { asOwner } from "./owner.mjs";
import { browser, chat, gateway, makeKey, useGateway } from "./suite.mjs";

const REFUSAL = "<Error><Code>AccessDenied</Code><Message>User: arn:aws:iam::1:user/export is not authorized to perform: s3:PutObject</Message></Error>";
const folder = mkdtempSync(join(tmpdir(), "tollgate-export-"));
const clock = join(folder, "clock");
let refuses = true;
const objects = new Set();
const storage = createServer((request, response) => {
  request.resume().on("end", () => {
    if (refuses) return response.writeHead(403).end(REFUSAL);
    objects.add(`${request.method} ${request.url.split("?")[0]}`);
    return response.writeHead(200).end();
  });
});

async function environment() {
  await new Promise((resolve) => storage.listen(0, "127.0.0.1", resolve));
  writeFileSync(clock, `${-2 * 86_400}`);
  const settings = {
    ENDPOINT: `http://127.0.0.1:${storage.address().port}`, BUCKET: "acme-records", PREFIX: "tollgate/usage", ACCESS_KEY_ID: "AKTEST",
    SECRET_ACCESS_KEY: "test-secret", PRIVATE_NETWORK: "true",
  };
  const exporting = Object.entries(settings).map(([name, value]) => [`TOLLGATE_EXPORT__${name}`, value]);
  return { ...Object.fromEntries(exporting), GATEWAY_TEST_CLOCK: clock };
}

useGateway({ environment });

after(() => {
  storage.close();
  rmSync(folder, { recursive: true, force: true });
});

test("a failed export shows advice, and a button repeats it", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await chat(await makeKey(page, "exported"), { messages: [{ role: "user", content: "hello" }] });
    await page.goto(`${gateway.base}/system`);
    await page.getByText("All finished days are exported").waitFor();
    await checkPage(page, faults, "system, nothing to export");
  });
  writeFileSync(clock, "0");
  for (const [view, options] of Object.entries(VIEWS)) {
    await asOwner(browser, gateway, options, async (page, faults) => {
      await page.goto(`${gateway.base}/system`);
      if (view === "light") {
        await page.getByRole("button", { name: "Export", exact: true }).click();
        await page.getByText("AccessDenied").first().waitFor();
        await page.goto(`${gateway.base}/system`);
      }
      await page.getByText("the access key needs s3:PutObject").waitFor();
      await page.getByText(/^Days to export from .* on: 1$/).waitFor();
      await checkPage(page, faults, `system, failed export, ${view}`);
      await screenshot(page, `system-export-failed.${view}`);
    });
  }
  refuses = false;
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/system`);
    await page.getByRole("button", { name: "Export", exact: true }).click();
    await page.getByText("Records: 1,").first().waitFor();
    await checkPage(page, faults, "job of an export");
    await screenshot(page, "job-export");
    const day = new Date(Date.now() - 2 * 86_400_000).toISOString().slice(0, 10);
    assert.deepEqual([...objects], [`PUT /acme-records/tollgate/usage/date%3D${day}/part-00000.parquet`]);
  });
});

for (const [view, options] of Object.entries({ ...VIEWS, chinese: { ...VIEWS.light, locale: "zh-CN" } })) {
  test(`exported days are listed, ${view}`, async () => {
    await asOwner(browser, gateway, options, async (page, faults) => {
      await page.goto(`${gateway.base}/system`);
      await page.locator("#export-title").waitFor();
      assert.equal(await page.locator("#usage-export tbody tr").count(), 1);
      await checkPage(page, faults, `system, ${view}`);
      await screenshot(page, `system-export.${view}`);
    });
  });
}
