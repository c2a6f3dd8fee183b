// Display of pages: the columns and density of tables, the currency of amounts, the zone of times, the
// width of bars, and messages with an undo button.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, openPage, screenshot } from "./browser.mjs";
import { until } from "./every-page.mjs";
import { asOwner } from "./owner.mjs";
import { browser, chat, gateway, makeKey, useGateway } from "./suite.mjs";

useGateway();

test("columns and density of a table are chosen by keyboard, and kept", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/channels`);
    const margin = page.getByRole("columnheader", { name: "Margin" });
    const row = page.locator("tbody tr").first();
    const { height } = await row.boundingBox();
    await page.locator("[data-table-view] summary").focus();
    await page.keyboard.press("Enter");
    await page.getByLabel("Margin", { exact: true }).focus();
    await page.keyboard.press("Space");
    await margin.waitFor({ state: "hidden" });
    await page.getByLabel("Compact").check();
    await checkPage(page, faults, "columns of a table");
    await screenshot(page, "columns.light");
    await page.keyboard.press("Escape");
    assert.equal(await page.evaluate(() => document.activeElement.tagName), "SUMMARY");
    assert.ok(!(await page.getByLabel("Compact").isVisible()));
    await page.reload();
    await page.getByRole("columnheader", { name: "Models" }).waitFor();
    assert.ok(!(await margin.isVisible()));
    assert.ok(await page.locator("table.tight").isVisible());
    // Another table is as it was.
    await page.goto(`${gateway.base}/members`);
    assert.equal(await page.locator("th.column-off").count(), 0);
    await page.goto(`${gateway.base}/channels`);
    // Rows that are shown as cards have all columns.
    await page.setViewportSize(VIEWS.phone.viewport);
    assert.ok(await page.locator("tbody td.column-off").first().isVisible());
    assert.ok(!(await page.locator("[data-table-view]").isVisible()));
    await page.setViewportSize(VIEWS.light.viewport);
    await page.getByText("Columns", { exact: true }).click();
    await page.getByRole("button", { name: "Reset" }).click();
    await margin.waitFor();
    assert.equal((await row.boundingBox()).height, height);
  });
});

test("groups, prices and the accounts of a channel have a choice of columns", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    for (const [path, column] of [["/groups", "Visibility"], ["/pricing", "Source"], ["/channels/chat", "Last 60 minutes"]]) {
      await page.goto(gateway.base + path);
      const head = page.locator("table[data-table] th", { hasText: column });
      await head.waitFor();
      await page.getByText("Columns", { exact: true }).click();
      await page.getByLabel(column, { exact: true }).uncheck();
      await head.waitFor({ state: "hidden" });
      await checkPage(page, faults, `columns of ${path}`);
      await page.reload();
      await page.locator("table[data-table]").waitFor();
      assert.ok(!(await head.isVisible()), path);
      await page.getByText("Columns", { exact: true }).click();
      await page.getByRole("button", { name: "Reset" }).click();
      await head.waitFor();
    }
  });
});

test("a cell over several columns follows those that are shown", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await page.goto(`${gateway.base}/models?view=table`);
  const free = page.getByRole("row", { name: /acme\/small:free/ }).locator("td").nth(1);
  assert.equal(await free.getAttribute("colspan"), "3");
  await page.getByText("Columns", { exact: true }).click();
  await page.getByLabel("Input", { exact: true }).uncheck();
  await page.getByLabel("Output", { exact: true }).uncheck();
  assert.equal(await free.getAttribute("colspan"), "1");
  await checkPage(page, faults, "model square without two columns");
  // A filter loads the table again.
  await page.keyboard.press("Escape");
  await page.locator("#facets input[type=checkbox]").first().check();
  await page.waitForURL("**vendor=**");
  await page.locator("#found th[data-column=cached]").waitFor();
  assert.ok(!(await page.locator("#found th[data-column=input]").isVisible()));
  await context.close();
});

test("amounts are shown in the currency that the admin sets", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    for (const [name, fill] of [["currency", (field) => field.selectOption("CNY")], ["currency_per_usd", (field) => field.fill("7.1")]]) {
      await page.goto(`${gateway.base}/settings/console.${name}`);
      await fill(page.locator("#value"));
      await page.locator("main button.primary").click();
      await page.getByText("Saved", { exact: true }).waitFor();
    }
    await page.goto(`${gateway.base}/models`);
    // 2.40 USD after the group's multiplier of 0.9.
    await page.locator("span[title='$2.16']", { hasText: "CN¥15.336" }).first().waitFor();
    await page.getByText("CNY per 1M tokens").waitFor();
    await checkPage(page, faults, "model square in another currency");
    await screenshot(page, "models-currency.light");
    await page.goto(`${gateway.base}/playground?model=acme-large`);
    await page.locator("[data-price]", { hasText: "CN¥" }).waitFor();
    await page.goto(`${gateway.base}/overview`);
    await page.getByText("CN¥0.00").first().waitFor();
    await checkPage(page, faults, "overview in another currency");
    await page.goto(`${gateway.base}/settings/console.currency`);
    await page.locator("#value").selectOption("USD");
    await page.locator("main button.primary").click();
    await page.getByText("Saved", { exact: true }).waitFor();
  });
});

test("turning a key off is undone from the message, with and without JavaScript", async () => {
  for (const javaScriptEnabled of [true, false]) {
    await asOwner(browser, gateway, { ...VIEWS.light, javaScriptEnabled }, async (page, faults) => {
      await page.goto(`${gateway.base}/keys/new`);
      await page.locator("#name").fill(`undo-${javaScriptEnabled}`);
      await page.locator("main button.primary").click();
      await page.goto(`${gateway.base}/keys?search=undo-${javaScriptEnabled}`);
      await page.locator("tbody a").first().click();
      await page.getByRole("button", { name: "Switch off" }).click();
      await page.getByText("The key is off.").waitFor();
      if (javaScriptEnabled) await checkPage(page, faults, "key, off, to be undone");
      await screenshot(page, `undo.${javaScriptEnabled ? "light" : "without-javascript"}`);
      await page.getByRole("button", { name: "Undo" }).click();
      await page.getByText("The key is on.").waitFor();
    });
  }
});

test("a message that undoes ends after ten seconds, later while it is focused", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.clock.install();
    await page.goto(`${gateway.base}/keys?search=undo-true`);
    await page.locator("tbody a").first().click();
    await page.getByRole("button", { name: "Switch off" }).click();
    const undo = page.getByRole("button", { name: "Undo" });
    await undo.focus();
    await page.clock.runFor(15_000);
    assert.ok(await undo.isVisible());
    await undo.blur();
    await page.clock.runFor(2_000);
    await undo.waitFor({ state: "detached" });
  });
});

test("rows of the usage log have seconds, a record milliseconds and the offset", async () => {
  await asOwner(browser, gateway, { ...VIEWS.light, timezoneId: "America/New_York" }, async (page, faults) => {
    const key = await makeKey(page, "clock");
    const id = await chat(key, { messages: [{ role: "user", content: "Hello" }] });
    const row = page.locator(`a[href$="${id}"] time[title]`).first();
    await until(() => page.goto(`${gateway.base}/log?range=24h`).then(() => row.count()), (count) => count > 0);
    await page.goto(`${gateway.base}/log/${id}`);
    const exact = page.locator("time[data-exact][title]");
    await exact.waitFor();
    const at = new Date(await exact.getAttribute("datetime"));
    assert.match(await exact.textContent(), /^\d+ \w+ \d{4}, \d\d:\d\d:\d\d\.\d{3} -0[45]:00$/);
    assert.ok((await exact.textContent()).includes(`.${String(at.getMilliseconds()).padStart(3, "0")} `));
    assert.match(await exact.getAttribute("title"), /\.\d{3} UTC$/);
    await checkPage(page, faults, "record with an exact time");
    // Also of another day.
    await page.clock.install({ time: at.valueOf() + 3 * 86_400_000 });
    await page.goto(`${gateway.base}/log?range=24h`);
    await row.waitFor();
    assert.match(await row.textContent(), /^\d+ \w+, \d\d:\d\d:\d\d$/);
  });
});

test("times of a period are typed in the zone that is shown, and sent in UTC", async () => {
  await asOwner(browser, gateway, { ...VIEWS.light, timezoneId: "America/New_York" }, async (page, faults) => {
    const sent = (name) => new URL(page.url()).searchParams.get(name);
    await page.goto(`${gateway.base}/overview?since=2026-11-20T15:00:00Z&until=2026-11-20T18:30:00Z`);
    await page.locator("summary", { hasText: "Custom" }).click();
    assert.equal(await page.getByLabel("From · America/New_York").inputValue(), "2026-11-20T10:00");
    await page.getByLabel("Until · America/New_York").fill("2026-11-20T14:00");
    await checkPage(page, faults, "overview, period in a zone");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await page.waitForURL(/until=2026-11-20T19/);
    assert.deepEqual([sent("since"), sent("until")], ["2026-11-20T15:00:00Z", "2026-11-20T19:00:00Z"]);
    await page.goto(`${gateway.base}/log?custom=1&since=2026-07-01T04:00:00Z&until=2026-07-02T04:00:00Z`);
    assert.equal(await page.locator("#since").inputValue(), "2026-07-01T00:00", "in summer time");
    await page.locator("#since").fill("2026-07-01T12:00");
    await page.locator("#since").blur();
    await page.waitForURL(/since=2026-07-01T16/);
    assert.deepEqual([sent("since"), sent("until")], ["2026-07-01T16:00:00Z", "2026-07-02T04:00:00Z"]);
    // The last day is included.
    await page.goto(`${gateway.base}/audit`);
    for (const name of ["since", "until"]) await page.locator(`input[name=${name}]`).fill("2026-11-20");
    await page.getByRole("button", { name: "Filter" }).click();
    await page.waitForURL(/since=2026-11-20/);
    assert.deepEqual([sent("since"), sent("until")], ["2026-11-20T05:00:00Z", "2026-11-21T05:00:00Z"]);
    for (const name of ["since", "until"]) assert.equal(await page.locator(`input[name=${name}]`).inputValue(), "2026-11-20");
    await checkPage(page, faults, "audit log of a day");
  });
});

test("charts show the figure under the pointer, and its time in the displayed zone", async () => {
  await asOwner(browser, gateway, { ...VIEWS.light, timezoneId: "America/New_York" }, async (page, faults) => {
    const key = await makeKey(page, "pointed-at");
    await chat(key, { messages: [{ role: "user", content: "Hello" }] });
    const title = page.locator("section[aria-labelledby=outcomes] a:has(> rect.completed) > title").last();
    await until(() => page.goto(`${gateway.base}/overview?range=1h`).then(() => title.count()), (count) => count > 0);
    const plain = (text) => text.replace(/\s+/g, " ").trim();
    const format = new Intl.DateTimeFormat("en-GB", {
      day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZone: "America/New_York",
    });
    const at = new Date(await title.locator("time").getAttribute("datetime"));
    assert.match(plain(await title.textContent()), new RegExp(`^${format.format(at)}: Completed \\d+$`));
    const column = page.locator("svg.lines .hit title").last();
    assert.match(plain(await column.textContent()), /^\d+ \w+ \d{4}, \d\d:\d\d: p50 .+ · p95 .+ · p99 .+$/);
    await checkPage(page, faults, "overview with titles in its charts");
  });
});

test("days of rows and what happened some time ago name the time and the zone", async () => {
  await asOwner(browser, gateway, { ...VIEWS.light, timezoneId: "Pacific/Kiritimati" }, async (page) => {
    await makeKey(page, "of a day");
    const titled = async (time, text) => {
      await time.waitFor();
      const at = new Date(await time.getAttribute("datetime"));
      const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "Pacific/Kiritimati" });
      if (text === "day") assert.equal(await time.textContent(), day.format(at));
      const title = await time.getAttribute("title");
      assert.ok(title.includes("GMT+14") && title.endsWith(" UTC"), title);
    };
    await page.goto(`${gateway.base}/keys?search=of+a+day`);
    await titled(page.locator("tbody time[data-local=day][title]").first(), "day");
    await page.goto(`${gateway.base}/overview`);
    await titled(page.locator(".events time[title]").first());
  });
  // Without JavaScript the time is in UTC and marked as such.
  await asOwner(browser, gateway, { ...VIEWS.light, javaScriptEnabled: false }, async (page) => {
    await page.goto(`${gateway.base}/keys?search=of+a+day`);
    assert.match(await page.locator("tbody time[data-local=day]").first().textContent(), /^\d+ \w+ \d{4}, \d\d:\d\d UTC$/);
  });
});

test("times are in the zone of the profile", async () => {
  await asOwner(browser, gateway, { ...VIEWS.light, timezoneId: "America/New_York" }, async (page, faults) => {
    await page.goto(`${gateway.base}/profile`);
    // The script puts the time in UTC into the title.
    const time = page.locator("time[data-local][title]").first();
    const plain = (text) => text.replace(/\s/g, " ");
    const check = async (timeZone) => {
      const format = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short", timeZone });
      const at = new Date(await time.getAttribute("datetime"));
      assert.equal(plain(await time.textContent()), plain(format.format(at)));
      const named = new Intl.DateTimeFormat("en-GB", { timeZone, timeZoneName: "short" }).formatToParts(at);
      const title = await time.getAttribute("title");
      assert.ok(title.includes(named.find(({ type }) => type === "timeZoneName").value) && title.endsWith("UTC"), title);
    };
    await check("America/New_York");
    await page.getByLabel("Time zone").fill("Asia/Shanghai");
    await page.keyboard.press("Enter");
    await page.getByText("Saved", { exact: true }).waitFor();
    await check("Asia/Shanghai");
    await checkPage(page, faults, "profile with a time zone");
    await screenshot(page, "profile-time-zone.light");
  });
});

test("bars of the overview are a day wide by choice", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/overview?range=7d`);
    await page.locator("summary", { hasText: "Custom" }).click();
    await page.getByRole("link", { name: "Day", exact: true }).click();
    await page.waitForURL("**bars=day**");
    await checkPage(page, faults, "overview by day");
  });
});
