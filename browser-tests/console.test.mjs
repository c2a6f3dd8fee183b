// The pages of the console as people use them: first run, signing in, model square, profile, without JavaScript, and by keyboard.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, openPage, screenshot } from "./browser.mjs";
import { PASSWORD, signIn } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";

let keyPath;

useGateway({ isSetUp: false });

test("the first admin sets a password and finds the console", async () => {
  const { context, page, faults } = await openPage(browser, VIEWS.light);
  await page.goto(gateway.setupLink);
  await checkPage(page, faults, "set-up");
  await screenshot(page, "set-up.light");
  const strength = page.locator("[data-strength]");
  assert.equal(await strength.isVisible(), false);
  for (const [password, says] of [
    ["short", "10 to 128 characters"],
    ["Password123", "tried first"],
    ["abcabcabca", "Easy to guess"],
    ["four plain words here", "Hard to guess"],
  ]) {
    await page.locator("#new_password").fill(password);
    await strength.getByText(says).waitFor();
  }
  await page.locator("#new_password").fill(PASSWORD);
  await page.locator("#new_password_again").fill("something else");
  await page.locator("main button.primary").click();
  await page.getByText("The two passwords differ").waitFor();
  assert.equal(await page.locator("#new_password_again").getAttribute("aria-invalid"), "true");
  await page.locator("#new_password").fill(PASSWORD);
  await page.locator("#new_password_again").fill(PASSWORD);
  await page.locator("main button.primary").click();
  await page.waitForURL("**/setup/gateway");
  await checkPage(page, faults, "set-up, gateway");
  await screenshot(page, "set-up-gateway.light");
  await page.getByLabel("Name", { exact: true }).fill("Acme models");
  await page.getByLabel("Address for callers").fill("api.example.com");
  await page.locator("main button.primary").click();
  await page.getByText("Enter an address such as https://api.example.com").waitFor();
  assert.equal(await page.getByLabel("Address for callers").inputValue(), "api.example.com");
  await checkPage(page, faults, "set-up, gateway, refused");
  await page.getByLabel("Address for callers").fill("");
  await page.getByLabel("Currency of amounts").selectOption("EUR");
  await page.locator("main button.primary").click();
  await page.getByText("Enter the units of the currency for one USD").waitFor();
  await page.getByLabel("Currency of amounts").selectOption("USD");
  await page.locator("main button.primary").click();
  await page.waitForURL("**/setup/channel");
  await checkPage(page, faults, "set-up, channel");
  await screenshot(page, "set-up-channel.light");
  await page.getByRole("radio", { name: "OpenAI-compatible" }).check();
  await page.getByLabel("Name", { exact: true }).fill("local");
  await page.getByLabel("Base URL").fill(`http://${gateway.provider}/v1`);
  await page.getByLabel("Credential").fill("a credential");
  await page.getByLabel("It may reach private addresses").check();
  await page.locator("main button.primary").click();
  await page.waitForURL("**/setup/channel/local");
  await page.getByRole("button", { name: "Fetch from the provider" }).click();
  await page.getByLabel("chat-model", { exact: true }).check();
  await checkPage(page, faults, "set-up, models");
  await screenshot(page, "set-up-models.light");
  await page.getByRole("button", { name: "Serve the chosen" }).click();
  await page.getByRole("button", { name: "Run test" }).click();
  await page.locator(".stages").getByText("Passed").waitFor();
  await checkPage(page, faults, "set-up, tested");
  await screenshot(page, "set-up-tested.light");
  await page.getByRole("button", { name: "Go on" }).click();
  await page.waitForURL("**/setup/key");
  await checkPage(page, faults, "set-up, key");
  await page.locator("main button.primary").click();
  await page.getByText("The key is ready").waitFor();
  await checkPage(page, faults, "set-up, key made");
  await screenshot(page, "set-up-key.light");
  const playground = new URL(await page.getByRole("link", { name: "Open playground" }).getAttribute("href"), gateway.base);
  const model = playground.searchParams.get("model");
  assert.ok(["acme-large", "acme/small:free", "chat-model"].includes(model), `${model} is a model of a provider`);
  assert.ok((await page.locator(".use").first().textContent()).includes(model));
  await page.getByRole("link", { name: "To the overview" }).click();
  await page.waitForURL("**/overview");
  await page.getByText("To get started").waitFor();
  await context.close();
});

// Goes back or forward and waits until the page is loaded again: back by htmx ("history": "reload" in the layout), forward by log.js. The
// next step would race with a load that has not ended.
async function traverse(page, by) {
  await page.evaluate((by) => {
    window.isLeft = true;
    // Not before this call is answered, because the load would abort it.
    setTimeout(() => history.go(by), 0);
  }, by);
  await page.waitForFunction(() => !window.isLeft && document.readyState === "complete");
}

// Requests that later tests see in the usage log: some answered, one refused.
async function sendRequests(key) {
  for (const model of ["acme-large", "acme/small:free", "acme-large", "no-such-model"]) {
    await fetch(`${gateway.base}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model, messages: [{ role: "user", content: "Say hello." }] }),
    });
  }
}

test("a key is made by keyboard, shown once, used, and found in the usage log", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/keys`);
  await page.getByRole("link", { name: "my-key", exact: true }).waitFor();
  await page.getByRole("link", { name: "New key" }).first().click();
  await page.locator("#name:focus").waitFor();
  await page.keyboard.type("mobile-app");
  await page.getByText("More options").click();
  await page.locator("#rpm").fill("many");
  await page.locator("#budget_month_block").fill("50");
  await checkPage(page, faults, "new key");
  await screenshot(page, "key-new.light");
  await page.keyboard.press("Enter");
  await page.getByText("Enter a whole number").waitFor();
  assert.equal(await page.locator("#name").inputValue(), "mobile-app");
  await page.locator("#rpm").fill("60");
  await page.keyboard.press("Enter");
  await page.getByText("The key is ready").waitFor();
  await checkPage(page, faults, "key, just made");
  await screenshot(page, "key-made.light");
  const key = await page.locator("code.input").textContent();
  await page.getByRole("radio", { name: "Python" }).focus();
  await page.keyboard.press("ArrowRight");
  await page.getByText('import OpenAI from "openai"').first().waitFor();
  await sendRequests(key);
  await page.goto(`${gateway.base}/keys`);
  keyPath = await page.getByRole("link", { name: "mobile-app" }).getAttribute("href");
  // Requests are in the log once they are booked.
  for (let tries = 0; tries < 50 && await page.locator("#rows [data-record]").count() < 4; tries += 1) {
    await page.goto(`${gateway.base}/log?range=15m`);
  }
  assert.equal(await page.locator("[data-record]").count(), 4);
  await page.evaluate(() => { window.kept = true; });
  await page.getByLabel("Outcome", { exact: true }).selectOption("refused");
  await page.waitForFunction(() => document.querySelectorAll("[data-record]").length === 1);
  assert.ok(page.url().includes("outcome=refused") && await page.evaluate(() => window.kept), page.url());
  assert.ok((await page.getByRole("link", { name: "CSV" }).getAttribute("href")).includes("outcome=refused"), "the export has the filter");
  await page.locator("[data-record]").click();
  await page.locator(".drawer").waitFor();
  await checkPage(page, faults, "record beside the log");
  await screenshot(page, "log-record.light");
  await page.waitForURL("**open=req_**");
  const opened = page.url();
  await page.keyboard.press("Escape");
  assert.equal(await page.locator(".drawer").count(), 0);
  assert.ok(await page.evaluate(() => document.activeElement.matches("[data-record]")), "the focus returns to the row");
  assert.ok(!page.url().includes("open="), page.url());
  await page.goto(opened);
  await page.locator(".drawer").waitFor();
  await page.goto(opened.replace(/&?open=req_[^&]+/, ""));
  await page.locator("[data-record]").click();
  await page.locator(".drawer").waitFor();
  await page.waitForURL("**open=req_**");
  await traverse(page, -1);
  assert.equal(await page.locator(".drawer").count(), 0);
  assert.ok(!page.url().includes("open="), page.url());
  await traverse(page, 1);
  await page.locator(".drawer").waitFor();
  assert.match(page.url(), /open=req_/);
  await context.close();
});

test("a click on a row of the usage log opens its record", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/log?range=15m`);
  const row = page.locator("tr:has([data-record])").first();
  const id = (await row.locator("[data-record]").getAttribute("href")).split("/").pop();
  const cell = row.locator("td.r").last();
  assert.equal(await cell.evaluate((element) => getComputedStyle(element).cursor), "pointer");
  await cell.click();
  await page.locator(`.drawer[data-open="${id}"]`).waitFor();
  await page.waitForURL(`**open=${id}**`);
  await page.keyboard.press("Escape");
  assert.ok(await page.evaluate(() => document.activeElement.matches("[data-record]")), "the focus returns to the row");
  for (const place of [cell, row.locator("[data-record]")]) {
    for (const how of [{ modifiers: ["ControlOrMeta"] }, { button: "middle" }]) {
      const [tab] = await Promise.all([context.waitForEvent("page"), place.click(how)]);
      await tab.waitForURL(`**/log/${id}`);
      await tab.close();
    }
  }
  const { x, y, width, height } = await row.locator("td.t span span").first().boundingBox();
  await page.mouse.move(x + 1, y + height / 2);
  await page.mouse.down();
  await page.mouse.move(x + width - 1, y + height / 2, { steps: 5 });
  await page.mouse.up();
  assert.notEqual(await page.evaluate(() => String(getSelection())), "");
  assert.equal(await page.locator(".drawer").count(), 0, "selecting text opens nothing");
  await checkPage(page, faults, "log, text selected");
  await context.close();
});

test("a tap shows the title of an element, and opens the record of a row", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.phone, locale: "en" });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/log?range=15m`);
  const figure = page.locator("#rows .figs dd[title]").first();
  await figure.tap();
  await page.locator("#toasts .toast", { hasText: await figure.getAttribute("title") }).waitFor();
  await checkPage(page, faults, "log, a title shown");
  await screenshot(page, "log-title.phone");
  await page.reload();
  await page.locator("tr:has([data-record]) td[title]:visible").first().tap();
  await page.locator(".drawer").waitFor();
  assert.equal(await page.locator("#toasts .toast").count(), 0, "a row that opens its record shows no title");
  await context.close();
});

test("a password can be shown before it is sent", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await page.goto(`${gateway.base}/sign-in`);
  await page.locator("#password").fill("something");
  assert.equal(await page.locator("#password").getAttribute("type"), "password");
  await page.getByLabel("Show password").check();
  assert.equal(await page.locator("#password").getAttribute("type"), "text");
  await checkPage(page, faults, "sign-in, password shown");
  await page.getByLabel("Show password").uncheck();
  assert.equal(await page.locator("#password").getAttribute("type"), "password");
  await context.close();
});

test("members who are remembered keep the session when the browser is closed", async () => {
  const cookie = async (context) => (await context.cookies()).find(({ name }) => name === "tollgate_session");
  for (const javaScriptEnabled of [true, false]) {
    const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en", javaScriptEnabled });
    await signIn(page, gateway);
    assert.equal((await cookie(context)).expires, -1, "it ends with the browser");
    await context.clearCookies();
    await page.goto(`${gateway.base}/sign-in`);
    await page.locator("#login").fill("owner");
    await page.locator("#password").fill("not the password");
    await page.getByLabel("Remember me on this device").check();
    await page.locator("main button.primary").click();
    await page.locator(".banner.bad:visible").waitFor();
    assert.ok(await page.getByLabel("Remember me on this device").isChecked(), "the checkbox keeps its state when the password is wrong");
    await page.locator("#login").fill("owner");
    await page.locator("#password").fill(PASSWORD);
    await page.locator("main button.primary").click();
    await page.waitForURL((url) => !url.pathname.endsWith("/sign-in"));
    const days = ((await cookie(context)).expires - Date.now() / 1_000) / 86_400;
    assert.ok(days > 29.9 && days <= 30, `${days} days`);
    await page.goto(`${gateway.base}/profile`);
    const session = page.locator("tr", { hasText: "this one" });
    await session.getByText("remembered").waitFor();
    if (javaScriptEnabled) {
      await checkPage(page, faults, "profile with a remembered session");
      await screenshot(page, "profile-remembered.light");
    }
    await session.getByRole("button", { name: "End" }).click();
    await context.close();
  }
});

test("new records appear while the log is followed", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await page.goto(gateway.base + keyPath);
  await page.getByRole("button", { name: "Replace the key" }).click();
  const key = await page.locator("code.input").textContent();
  await page.goto(`${gateway.base}/log?range=15m`);
  await page.getByRole("button", { name: "Follow" }).click();
  await page.getByRole("button", { name: "Live" }).waitFor();
  const before = await page.locator("[data-record]").count();
  await sendRequests(key);
  await page.waitForFunction((count) => document.querySelectorAll("[data-record]").length === count + 4, before);
  assert.ok(page.url().includes("follow=1"), page.url());
  await page.reload();
  await page.getByRole("button", { name: "Live" }).waitFor();
  await page.getByRole("link", { name: "1 h", exact: true }).click();
  await page.waitForURL("**range=1h**follow=1");
  await page.getByRole("button", { name: "Live" }).click();
  await page.getByRole("button", { name: "Paused" }).waitFor();
  assert.ok(!page.url().includes("follow"), page.url());
  // While it is paused, new records are counted; the list changes on request.
  const shown = await page.locator("[data-record]").count();
  await sendRequests(key);
  await page.getByRole("button", { name: "4 new" }).waitFor();
  assert.equal(await page.locator("[data-record]").count(), shown);
  await checkPage(page, faults, "log, paused");
  await screenshot(page, "log-paused.light");
  await page.getByRole("button", { name: "4 new" }).click();
  await page.waitForFunction((count) => document.querySelectorAll("[data-record]").length === count + 4, shown);
  assert.equal(await page.locator("[data-new]").isVisible(), false);
  // The same while the list is scrolled down, until it is at its top again.
  await page.getByRole("button", { name: "Paused" }).click();
  await page.getByRole("button", { name: "Live" }).waitFor();
  await page.setViewportSize({ width: 1440, height: 500 });
  await page.evaluate(() => scrollTo(0, 300));
  await sendRequests(key);
  await page.getByRole("button", { name: "4 new" }).waitFor();
  assert.equal(await page.locator("[data-record]").count(), shown + 4);
  await screenshot(page, "log-scrolled.light");
  await page.evaluate(() => scrollTo(0, 0));
  await page.waitForFunction((count) => document.querySelectorAll("[data-record]").length === count + 8, shown);
  await checkPage(page, faults, "log, followed");
  await context.close();
});

for (const [view, options] of Object.entries(VIEWS)) {
  for (const locale of ["en", "zh-CN"]) {
    test(`public pages: ${view}, ${locale}`, async () => {
      const { context, page, faults } = await openPage(browser, { ...options, locale });
      for (const [name, path] of [
        ["models", "/models"],
        ["models-table", "/models?view=table"],
        ["model", "/models/acme-large"],
        ["status", "/status"],
        ["sign-in", "/sign-in"],
        ["not-found", "/no-such-page"],
      ]) {
        await page.goto(gateway.base + path);
        assert.equal(await page.locator("html").getAttribute("lang"), locale);
        await checkPage(page, faults, `${name}, ${view}, ${locale}`);
        await screenshot(page, `${name}.${view}${locale === "en" ? "" : ".zh"}`);
      }
      await context.close();
    });
  }

  for (const locale of ["en", "zh-CN"]) {
    test(`pages of members: ${view}, ${locale}`, async () => {
      const { context, page, faults } = await openPage(browser, { ...options, locale: "en" });
      await signIn(page, gateway);
      await context.addCookies([{ name: "tollgate_language", value: locale, url: gateway.base }]);
      await page.goto(`${gateway.base}/log?range=15m`);
      const recordPath = await page.locator("[data-record]").last().getAttribute("href");
      for (const [name, path] of [
        ["home", "/console"],
        ["profile", "/profile"],
        ["codes", "/profile/codes"],
        ["models-member", "/models"],
        ["keys", "/keys"],
        ["key", keyPath],
        ["key-new", "/keys/new"],
        ["log", "/log?range=15m"],
        ["log-none", "/log?model=no-request-for-it"],
        ["record", recordPath],
        ["menu", "/menu"],
        ["search", "/search?q=a"],
        ["shortcuts", "/shortcuts"],
        ["overview", "/overview?range=1h"],
        ["channels", "/channels"],
        ["channel", "/channels/local?model=chat-model&caller=group%3Adefault"],
        ["channel-new", "/channels/new"],
        ["channel-edit", "/channels/local/edit"],
        ["channel-models", "/channels/local/models"],
        ["channel-test", "/channels/local/test"],
        ["account", "/channels/local/accounts/main"],
        ["account-new", "/channels/local/accounts/new"],
        ["set-up-channel", "/setup/channel"],
        ["set-up-key", "/setup/key"],
      ]) {
        await page.goto(gateway.base + path);
        assert.equal(await page.locator("html").getAttribute("lang"), locale);
        await checkPage(page, faults, `${name}, ${view}, ${locale}`);
        await screenshot(page, `${name}.${view}${locale === "en" ? "" : ".zh"}`);
      }
      await context.close();
    });
  }
}

test("a broken channel is found and repaired by its messages alone", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/channels/new`);
  await page.getByRole("radio", { name: "OpenAI-compatible" }).check();
  await page.getByLabel("Name", { exact: true }).fill("broken");
  await page.getByLabel("Base URL").fill("http://127.0.0.1:9/v1");
  await page.getByLabel("It may reach private addresses").check();
  await page.locator("main button.primary").click();
  await page.waitForURL("**/channels/broken/models");
  await page.getByLabel("Name for callers").fill("broken-model");
  await page.getByRole("button", { name: "Serve it" }).click();
  await page.goto(`${gateway.base}/channels/broken`);
  await page.getByRole("button", { name: "Run test" }).click();
  await page.locator(".stages li.bad").waitFor();
  await checkPage(page, faults, "channel, failed test");
  await screenshot(page, "channel-failed.light");
  await page.getByRole("link", { name: "Edit" }).click();
  await page.getByLabel("Base URL").fill(`http://${gateway.provider}/v1`);
  await page.locator("main button.primary").click();
  await page.waitForURL("**/channels/broken");
  await page.getByRole("button", { name: "Run test" }).click();
  await page.locator(".stages").getByText("Passed").waitFor();
  await page.getByRole("button", { name: "Switch off" }).click();
  await page.getByText("The channel is off.").waitFor();
  await context.close();
});

test("a channel is tested without JavaScript", async () => {
  const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en", javaScriptEnabled: false });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/channels/local`);
  await page.getByRole("button", { name: "Run test" }).click();
  await page.locator(".stages").getByText("Passed").waitFor();
  await page.getByRole("link", { name: "To local" }).click();
  await page.waitForURL("**/channels/local");
  await context.close();
});

test("the keyboard reaches every page", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await page.keyboard.press("g");
  await page.keyboard.press("o");
  await page.waitForURL("**/overview");
  await page.keyboard.press("?");
  await page.locator("dialog.palette kbd").first().waitFor();
  await checkPage(page, faults, "shortcuts over the page");
  await page.keyboard.press("Escape");
  await page.goto(`${gateway.base}/log`);
  await page.keyboard.press("/");
  await page.locator("#filter :is(input, select):focus").waitFor();
  await page.goto(`${gateway.base}/overview`);
  await page.keyboard.press("Control+k");
  await page.locator("dialog.palette input:focus").waitFor();
  await page.locator("dialog.palette .hits a").first().waitFor();
  const cut = await page.locator("dialog.palette .hits").evaluate((list) => {
    const { bottom } = list.getBoundingClientRect();
    const rows = [...list.children].map((row) => row.getBoundingClientRect());
    return { cut: rows.filter((row) => row.top < bottom - 1 && row.bottom > bottom + 1).length, hidden: rows.filter((row) => row.top > bottom - 1).length };
  });
  assert.equal(cut.cut, 0, "the list ends with a whole row");
  assert.ok(cut.hidden > 0, "it has more rows than it shows");
  await page.keyboard.type("local");
  await page.locator("dialog.palette .hits a", { hasText: "local" }).waitFor();
  await checkPage(page, faults, "search over the page");
  await screenshot(page, "palette.light");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/channels/local");
  await context.close();
});

test("visitors move along the cards of the square, to other pages and to the help by keyboard", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await page.goto(`${gateway.base}/models`);
  const names = await page.locator(".model a.name").allTextContents();
  assert.ok(names.length > 1);
  const focused = () => page.evaluate(() => document.activeElement.textContent);
  for (const [key, name] of [["j", names[0]], ["j", names[1]], ["k", names[0]]]) {
    await page.keyboard.press(key);
    assert.equal(await focused(), name);
  }
  await page.keyboard.press("?");
  await page.locator("dialog.palette #shortcuts").waitFor();
  assert.equal(await page.locator("dialog.palette kbd", { hasText: "Ctrl" }).count(), 0, "visitors have no search");
  await checkPage(page, faults, "shortcuts of visitors");
  await page.keyboard.press("Escape");
  await page.locator("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/models/**");
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  await page.waitForURL("**/status");
  await context.close();
});

test("the foot of the sidebar is in view, and what has the focus is not behind it", async () => {
  for (const height of [900, 700]) {
    const { context, page } = await openPage(browser, { viewport: { width: 1440, height }, locale: "en" });
    await signIn(page, gateway);
    const foot = page.locator(".side .foot");
    const { y } = await foot.boundingBox();
    const bottom = (await page.getByRole("button", { name: "Sign out" }).boundingBox()).y;
    assert.ok(y > 0 && bottom < height, `${y} to ${bottom} of ${height}`);
    const last = page.locator(".side li a").last();
    await last.focus();
    const box = await last.boundingBox();
    assert.ok(box.y + box.height <= (await foot.boundingBox()).y, "the last entry is above the foot");
    await context.close();
  }
});

test("filters change the list and the address without loading the page", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await page.goto(`${gateway.base}/models`);
  await page.evaluate(() => { window.kept = true; });
  await page.getByLabel("Free").check();
  await page.getByText("1 of 3 models").waitFor();
  assert.equal(await page.evaluate(() => window.kept), true);
  assert.ok(page.url().includes("free=1"), page.url());
  await page.reload();
  assert.ok(await page.getByLabel("Free").isChecked());
  await checkPage(page, faults, "models, filtered");
  await context.close();
});

test("search, order, group and facets of the square keep each other, with and without JavaScript", async () => {
  for (const javaScriptEnabled of [true, false]) {
    const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en", javaScriptEnabled });
    await page.goto(`${gateway.base}/models`);
    // A choice is sent at once, or with the button of the form.
    const choose = async (change, expected) => {
      await change();
      if (!javaScriptEnabled) await page.locator("#search button[type=submit]").click();
      await page.waitForURL((url) => Object.entries(expected).every(([name, value]) => url.searchParams.get(name) === value));
    };
    await choose(() => page.locator("#facets input[name=vendor][value=Acme]").check(), { vendor: "Acme" });
    await choose(() => page.locator("#sort").selectOption("price"), { vendor: "Acme", sort: "price" });
    await choose(() => page.locator("#group").selectOption("priority"), { vendor: "Acme", sort: "price", group: "priority" });
    await page.locator("#q").fill("acme");
    await page.locator("#q").press("Enter");
    const all = { vendor: "Acme", sort: "price", group: "priority", q: "acme" };
    await page.waitForURL((url) => Object.entries(all).every(([name, value]) => url.searchParams.get(name) === value));
    await choose(() => page.locator("#facets input[name=free]").check(), { ...all, free: "1" });
    await page.getByText(/^1 of \d+ models$/).waitFor();
    await page.reload();
    assert.ok(await page.locator("#facets input[name=vendor][value=Acme]").isChecked());
    assert.deepEqual([await page.locator("#sort").inputValue(), await page.locator("#q").inputValue()], ["price", "acme"]);
    if (javaScriptEnabled) await checkPage(page, faults, "models, filtered and sorted");
    await context.close();
  }
});

test("theme and language work with and without JavaScript", async () => {
  for (const javaScriptEnabled of [true, false]) {
    const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en", javaScriptEnabled });
    await page.goto(`${gateway.base}/models`);
    await page.getByRole("button", { name: "Dark" }).click();
    await page.goto(`${gateway.base}/status`);
    assert.equal(await page.locator("html").getAttribute("data-theme"), "dark");
    await page.locator("#language").selectOption("zh-CN");
    if (!javaScriptEnabled) await page.getByRole("button", { name: "Change" }).click();
    await page.locator("html[lang=zh-CN]").waitFor();
    await context.close();
  }
});

test("signing in works without JavaScript and by keyboard alone", async () => {
  const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en", javaScriptEnabled: false });
  await page.goto(`${gateway.base}/profile`);
  await page.waitForURL("**/sign-in?to=%2Fprofile");
  await page.locator("#login:focus").waitFor();
  await page.keyboard.type("owner");
  await page.keyboard.press("Tab");
  await page.keyboard.type(PASSWORD);
  await page.keyboard.press("Enter");
  await page.waitForURL("**/profile");
  await context.close();
});
