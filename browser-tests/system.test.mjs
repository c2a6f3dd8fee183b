// What admins do on the system's page, with keys of the admin API and with price lists, and how members change the own password and end
// sessions: each step by the pages, and its effect.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { VIEWS, checkPage, openPage, screenshot } from "./browser.mjs";
import { PASSWORD, asOwner, signIn } from "./owner.mjs";
import { browser, chat, gateway, makeKey, useGateway } from "./suite.mjs";

useGateway();

const HELLO = { messages: [{ role: "user", content: "Hello" }] };

// Waits until the page of a job, which follows its progress, shows the result.
async function result(page) {
  await page.waitForURL("**/system/jobs/**");
  await page.getByRole("heading", { name: "Result" }).waitFor();
  await page.locator(".st.ok", { hasText: "Done" }).waitFor();
}

test("an admin key works from its creation to its revocation", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    const make = async (password) => {
      await page.locator("#name").fill("deploy");
      await page.locator("#scope").selectOption("operator");
      await page.locator("#password").fill(password);
      await page.getByRole("button", { name: "Create admin key" }).click();
    };
    await page.goto(`${gateway.base}/members/admin-keys`);
    await make("not the password");
    await page.locator("#password[aria-invalid=true]").waitFor();
    assert.equal(await page.locator("#name").inputValue(), "deploy");
    await make(PASSWORD);
    await page.getByText("The key is ready: deploy").waitFor();
    const key = await page.locator("code.input").textContent();
    await checkPage(page, faults, "admin key, made");
    await screenshot(page, "admin-key-made.light");
    const status = async (path, sent = key) => {
      const answer = await fetch(gateway.base + path, { headers: { authorization: `Bearer ${sent}` } });
      return answer.status;
    };
    assert.equal(await status("/admin/v1/channels"), 200);
    assert.equal(await status("/admin/v1/admin-keys"), 403, "its scope is that of an operator");
    assert.equal(await status("/admin/v1/channels", `${key.slice(0, -1)}${key.endsWith("a") ? "b" : "a"}`), 401);

    await page.goto(`${gateway.base}/members/admin-keys`);
    assert.ok(!(await page.content()).includes(key), "it is shown once");
    await page.getByRole("link", { name: "deploy", exact: true }).click();
    await page.locator("summary", { hasText: "Revoke" }).click();
    await page.locator("#typed_name").fill("deplo");
    await page.getByRole("button", { name: "Revoke", exact: true }).click();
    await page.locator("#typed_name[aria-invalid=true]").waitFor();
    assert.equal(await status("/admin/v1/channels"), 200, "a wrong name revokes nothing");
    await page.locator("#typed_name").fill("deploy");
    await page.getByRole("button", { name: "Revoke", exact: true }).click();
    await page.getByText("The key is revoked.").waitFor();
    assert.equal(await status("/admin/v1/channels"), 401);
    await page.goto(`${gateway.base}/members/admin-keys?revoked=true`);
    await page.getByRole("row", { name: /deploy/ }).getByText("Revoked").waitFor();
    await checkPage(page, faults, "admin keys with a revoked one");
    await screenshot(page, "admin-keys-revoked.light");
  });
});

test("a backup is made, downloaded, checked and removed", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/system`);
    await page.getByText("There is no backup yet.").waitFor();
    await page.getByRole("button", { name: "Start: Backup" }).click();
    await result(page);
    await page.goto(`${gateway.base}/system`);
    const row = page.locator("#backups tbody tr");
    const name = await row.locator("a[download]").textContent();
    assert.ok(await row.getByText("Not checked").isVisible());
    const [download] = await Promise.all([page.waitForEvent("download"), row.locator("a[download]").click()]);
    assert.equal(download.suggestedFilename(), name);
    assert.ok(readFileSync(await download.path()).length > 1000);

    await page.getByRole("button", { name: `Check: ${name}` }).click();
    await result(page);
    await page.getByText("It is whole and can be restored.").waitFor();
    await page.getByText("All sums agree.").waitFor();
    await page.locator("dd", { hasText: /^\d+ \w{3} \d{4}, \d\d:\d\d UTC$/ }).waitFor();
    await checkPage(page, faults, "job, check of a backup");
    await screenshot(page, "job-backup-check.light");
    await page.goto(`${gateway.base}/system`);
    await row.getByText("All right").waitFor();
    await checkPage(page, faults, "system with a backup");
    await screenshot(page, "system-backup.light");

    const typed = row.locator("[name=typed_name]");
    await row.locator("summary", { hasText: "Delete" }).click();
    await typed.fill("another name");
    await row.getByRole("button", { name: "Delete" }).click();
    await row.getByText("This is not the name.").waitFor();
    assert.deepEqual([await typed.inputValue(), await typed.getAttribute("aria-invalid")], ["another name", "true"]);
    await checkPage(page, faults, "backup, not removed");
    await screenshot(page, "system-backup-refused.light");
    await typed.fill(name);
    await row.getByRole("button", { name: "Delete" }).click();
    await page.getByText("Deleted.").waitFor();
    await page.getByText("There is no backup yet.").waitFor();
    assert.equal(await row.count(), 0);
    assert.equal((await page.request.get(`${gateway.base}/admin/v1/backups/${name}`)).status(), 404);
  });
});

test("a replay shows what the recorded requests would have cost with another catalog", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    const key = await makeKey(page, "replayed");
    for (let count = 0; count < 2; count += 1) await chat(key, HELLO);
    await page.goto(`${gateway.base}/log?range=15m`);
    for (let tries = 0; tries < 100 && await page.locator("[data-record]").count() < 2; tries += 1) {
      await page.waitForTimeout(100);
      await page.reload();
    }
    const served = readFileSync(process.env.CATALOG, "utf8").replaceAll("PROVIDER", gateway.provider);
    // Twice the price, and three times the cost.
    const price = (input, output, cache) => `price = { input = "${input}", output = "${output}", cache_read = "${cache}" }`;
    const cost = (input, output) => `model = "acme-large"\nupstream = "chat-model"\ncost = { input = "${input}", output = "${output}" }`;
    for (const now of [price("2.40", "12", "0.24"), cost("1", "2")]) assert.ok(served.includes(now), `the catalog has ${now}`);
    const file = served.replace(price("2.40", "12", "0.24"), price("4.80", "24", "0.48")).replace(cost("1", "2"), cost("3", "6"));
    await page.goto(`${gateway.base}/system/replay`);
    await page.locator("#file").fill("[[channel");
    await page.getByRole("button", { name: "Start" }).click();
    await page.locator("#file[aria-invalid=true]").waitFor();
    await page.getByText(/^Line 1, column/).waitFor();
    await checkPage(page, faults, "replay, refused");
    await screenshot(page, "replay-refused.light");
    await page.locator("#file").fill(file);
    await page.locator("#model").fill("acme-large");
    await page.getByRole("button", { name: "Start" }).click();
    await result(page);
    await screenshot(page, "job-replay.light");
    const cells = (table, row) => {
      const rows = page.getByRole("region", { name: table }).locator("tbody tr", { hasText: row });
      return rows.first().locator("td").allTextContents();
    };
    assert.deepEqual(await cells("All requests", "Served"), ["Served", "2", "2"]);
    const amount = (text) => Number(text.replace("$", ""));
    const times = (factor, text) => (factor * amount(text)).toFixed(9);
    const [, saleBefore, saleAfter] = await cells("All requests", "Spent");
    assert.ok(amount(saleBefore) > 0, "the requests were charged");
    assert.equal(times(1, saleAfter), times(2, saleBefore));
    const [, channel, before, after, costBefore, costAfter] = await cells("By model and channel", "acme-large");
    assert.deepEqual([channel, before, after], ["chat", "2", "2"]);
    assert.equal(times(1, costAfter), times(3, costBefore));
    await checkPage(page, faults, "job, replay");
    await page.goto(`${gateway.base}/system`);
    await page.locator("tr", { hasText: "Replay" }).getByText("Done").waitFor();
  });
});

test("picked prices of a list are written, those of a job too, and nothing before", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    const shown = async () => {
      await page.goto(`${gateway.base}/pricing`);
      return (await page.locator("tr", { hasText: "unpriced-model" }).first().textContent()).match(/\$[\d.,]+/g) ?? [];
    };
    const fill = async (input, output) => {
      await page.locator("#source").selectOption("csv");
      await page.locator("#to").selectOption("sale");
      await page.locator("#file").fill(`model,input,output\nunpriced-model,${input},${output}\n`);
    };
    const sale = (prices) => prices.filter((price) => ["$3.00", "$9.00", "$4.00", "$11.00"].includes(price));
    assert.deepEqual(sale(await shown()), []);
    await page.goto(`${gateway.base}/pricing/import`);
    await fill(3, 9);
    await page.getByRole("button", { name: "Compare" }).click();
    const row = page.locator("#difference tr", { hasText: "unpriced-model" });
    await row.getByText("New", { exact: true }).waitFor();
    await screenshot(page, "import-compared.light");
    await row.getByRole("checkbox").uncheck();
    assert.ok(await page.getByRole("button", { name: "Import picked prices" }).isDisabled(), "nothing is picked");
    assert.deepEqual(sale(await shown()), [], "a comparison writes nothing");

    await page.goto(`${gateway.base}/pricing/import`);
    await fill(3, 9);
    await page.getByRole("button", { name: "Compare" }).click();
    await page.getByRole("button", { name: "Import picked prices" }).click();
    await page.waitForURL("**/pricing");
    await page.getByText("Saved", { exact: true }).waitFor();
    assert.deepEqual(sale(await shown()), ["$3.00", "$9.00"]);

    for (const isDry of [true, false]) {
      await page.goto(`${gateway.base}/system/import`);
      await fill(4, 11);
      await page.locator("#dry_run").setChecked(isDry);
      await page.getByRole("button", { name: "Start" }).click();
      await result(page);
      const changed = page.getByRole("region", { name: "Difference to the catalog" }).locator("tr", { hasText: "unpriced-model" });
      await changed.getByText("Changed").waitFor();
      if (isDry) await checkPage(page, faults, "job, import");
      await screenshot(page, `job-import-${isDry ? "dry" : "written"}.light`);
      assert.equal(await page.getByText("Nothing is written").count(), isDry ? 1 : 0);
      assert.deepEqual(sale(await shown()), isDry ? ["$3.00", "$9.00"] : ["$4.00", "$11.00"]);
    }
  });
});

// Another browser of the admin, for the sessions that end.
async function another(use) {
  const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await use(page);
  await context.close();
}

async function isSignedOut(page) {
  await page.goto(`${gateway.base}/profile`);
  await page.waitForURL("**/sign-in?to=%2Fprofile");
}

test("all other sessions are ended at once", async () => {
  await another((first) => another((second) => asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/profile`);
    const ends = page.getByRole("button", { name: "End", exact: true });
    assert.ok(await ends.count() >= 3);
    await screenshot(page, "profile-sessions.light");
    await page.getByRole("button", { name: "End all other sessions" }).click();
    await page.getByText("The other sessions have ended.").waitFor();
    assert.equal(await ends.count(), 1);
    assert.equal(await page.getByRole("button", { name: "End all other sessions" }).count(), 0);
    for (const other of [first, second]) await isSignedOut(other);
  })));
});

test("a changed password ends other sessions, and the old one is refused", async () => {
  const changed = "nine green bottles";
  await another((other) => asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    const change = async (current, password, again = password) => {
      await page.goto(`${gateway.base}/profile`);
      await page.locator("#password").fill(current);
      await page.locator("#new_password").fill(password);
      await page.locator("#new_password_again").fill(again);
      await page.getByRole("button", { name: "Change password" }).click();
    };
    await change("not the password", changed);
    await page.getByText("That is not your current password.").waitFor();
    await checkPage(page, faults, "profile, wrong password");
    await screenshot(page, "profile-wrong-password.light");
    await change(PASSWORD, changed, "nine green bottle");
    await page.getByText("The two passwords differ.").waitFor();
    await other.goto(`${gateway.base}/profile`);
    assert.ok(other.url().endsWith("/profile"), "nothing has changed yet");
    await change(PASSWORD, changed);
    await page.getByText("The password is changed.").waitFor();
    await isSignedOut(other);
    for (const [password, isRight] of [[PASSWORD, false], [changed, true]]) {
      await other.locator("#login").fill("owner");
      await other.locator("#password").fill(password);
      await other.locator("main button.primary").click();
      if (isRight) await other.waitForURL("**/profile");
      else await other.getByText("The name or the password is wrong.").waitFor();
    }
  }));
});
