// Keys in a browser: the menu of a row, the usage and the test of a key, and forms that are restored after the session has ended.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, openPage, screenshot } from "./browser.mjs";
import { PASSWORD, asOwner, callApi, signIn } from "./owner.mjs";
import { browser, chat, gateway, makeKey, useGateway } from "./suite.mjs";

useGateway();

const HELLO = [{ role: "user", content: "Say hello." }];

test("a key is tested on its page over the chosen protocol, and its secret is kept nowhere", async () => {
  await asOwner(browser, gateway, { ...VIEWS.light, intercepts: true }, async (page, faults, context) => {
    const key = await makeKey(page, "tested");
    const sent = [];
    page.on("request", (request) => sent.push({ url: request.url(), body: request.postData() ?? "" }));
    const panel = page.locator("[data-key-test]");
    await panel.getByRole("button", { name: "Send a request" }).click();
    await panel.getByText("Answered").waitFor();
    await checkPage(page, faults, "key, tested");
    await screenshot(page, "key-tested.light");
    assert.ok(sent.some(({ url }) => url.endsWith("/v1/chat/completions")), JSON.stringify(sent));
    await page.locator("#use").getByText("Messages", { exact: true }).click();
    await Promise.all([page.waitForResponse("**/v1/messages"), panel.getByRole("button", { name: "Send a request" }).click()]);
    await panel.getByText("Answered").waitFor();
    assert.ok(sent.every(({ url, body }) => !url.includes(key) && !body.includes(key)), "the secret is only in headers");
    const stored = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
    assert.ok(!stored.includes(key), stored);
    const record = await panel.getByRole("link", { name: "Open in the usage log" }).getAttribute("href");
    for (let tries = 0; tries < 50 && (await page.goto(gateway.base + record)).status() !== 200; tries += 1) await page.waitForTimeout(200);
    await page.getByText("tested").first().waitFor();

    await page.goto(`${gateway.base}/keys?search=tested`);
    await page.locator("tbody td.t a").click();
    await panel.getByLabel("The key").fill("sk-tg-wrong-wrong-wrong-wrong");
    await panel.getByRole("button", { name: "Send a request" }).click();
    await panel.getByText("HTTP 401").waitFor();
    await panel.getByLabel("The key").fill("é");
    await panel.getByRole("button", { name: "Send a request" }).click();
    await panel.getByText("The gateway does not know this key.").waitFor();
    await checkPage(page, faults, "key, wrong secret");
    await screenshot(page, "key-test-refused.light");
    await page.route("**/v1/**", (route) => route.abort());
    await panel.getByLabel("The key").fill(key);
    await panel.getByRole("button", { name: "Send a request" }).click();
    await panel.getByText("No answer.").waitFor();
    await context.unrouteAll();
  });
});

test("the groups of a key are chosen and put in order by keyboard", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    for (const name of ["tried-first", "tried-second"]) await callApi(page, "POST", "/admin/v1/groups", { name, channels: ["chat"] });
    const { id } = await callApi(page, "POST", "/admin/v1/keys", { name: "ordered", groups: ["tried-first"] });
    await page.goto(`${gateway.base}/keys/${id}`);
    const second = page.getByRole("checkbox", { name: "tried-second" });
    await second.focus();
    await page.keyboard.press("Space");
    const up = page.getByRole("button", { name: "Move tried-second up" });
    await up.focus();
    for (let tries = 0; tries < 20 && await up.getAttribute("aria-disabled") === "false"; tries += 1) await page.keyboard.press("Enter");
    await checkPage(page, faults, "key, groups in order");
    await screenshot(page, "key-groups.light");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved").first().waitFor();
    assert.deepEqual((await callApi(page, "GET", `/admin/v1/keys/${id}`)).groups, ["tried-second", "tried-first"]);
    assert.deepEqual(await page.locator("[data-order] input:checked").evaluateAll((all) => all.map((box) => box.value)), ["tried-second", "tried-first"]);
  });
});

test("the page of a key shows its use, which leads to the log", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults, context) => {
    const key = await makeKey(page, "used");
    await chat(key, { messages: HELLO });
    await chat(key, { messages: HELLO });
    await page.goto(`${gateway.base}/keys?search=used`);
    const path = await page.locator("tbody td.t a").getAttribute("href");
    const requests = page.locator("a.tile", { hasText: "Requests" });
    for (let tries = 0; tries < 50; tries += 1) {
      await page.goto(gateway.base + path);
      if (await requests.locator(".v").textContent() === "2") break;
    }
    assert.equal(await requests.locator(".v").textContent(), "2");
    for (const [view, options] of Object.entries(VIEWS)) {
      for (const locale of ["en", "zh-CN"]) {
        await context.addCookies([{ name: "tollgate_language", value: locale, url: gateway.base }]);
        await page.emulateMedia({ colorScheme: options.colorScheme });
        await page.setViewportSize(options.viewport);
        await page.goto(gateway.base + path);
        await checkPage(page, faults, `key, used, ${view}, ${locale}`);
        await screenshot(page, `key-used.${view}${locale === "en" ? "" : ".zh"}`);
      }
    }
    await context.addCookies([{ name: "tollgate_language", value: "en", url: gateway.base }]);
    await page.setViewportSize(VIEWS.light.viewport);
    await page.goto(gateway.base + path);
    await requests.click();
    await page.waitForURL("**/log?range=30d&key=key_**");
    assert.equal(await page.locator("[data-record]").count(), 2);
  });
});

test("the menu of a row works by keyboard, without JavaScript, and inside the window", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await makeKey(page, "menu-a");
    await makeKey(page, "menu-b");
    await page.goto(`${gateway.base}/keys?search=menu`);
    const menus = page.locator(".row-menu");
    const [first, last] = [menus.first(), menus.last()];
    await first.locator("summary").focus();
    await page.keyboard.press("Enter");
    await first.locator("a.opt").first().waitFor();
    await page.keyboard.press("Tab");
    assert.ok(await first.locator("a.opt").first().evaluate((link) => link === document.activeElement));
    await checkPage(page, faults, "keys, menu of a row");
    await screenshot(page, "keys-menu.light");
    await page.keyboard.press("Escape");
    assert.ok(await first.locator("summary").evaluate((summary) => summary === document.activeElement && !summary.parentElement.open));
    await first.locator("summary").click();
    // The open menu covers the rows below it.
    await last.locator("summary").focus();
    await page.keyboard.press("Enter");
    assert.equal(await page.locator(".row-menu[open]").count(), 1, "one menu is open");
    // At the lower edge of a low window it opens upwards.
    const { y } = await last.locator("summary").boundingBox();
    await page.setViewportSize({ width: 1440, height: Math.round(y) + 60 });
    const box = await last.locator(".pop").boundingBox();
    assert.ok(box.y >= 0 && box.y + box.height <= y + 60, JSON.stringify(box));
    assert.ok(box.x + box.width <= 1440, JSON.stringify(box));
    await page.setViewportSize(VIEWS.light.viewport);
    await page.locator("h1").click();
    assert.equal(await page.locator(".row-menu[open]").count(), 0, "a click elsewhere closes it");
    await last.locator("summary").click();
    await last.getByRole("button", { name: "Switch off" }).click();
    await page.getByText("The key is off.").waitFor();
    assert.ok(page.url().endsWith("/keys?search=menu"), page.url());
  });
  for (const view of ["light", "phone"]) {
    await asOwner(browser, gateway, { ...VIEWS[view], javaScriptEnabled: false }, async (page) => {
      await page.goto(`${gateway.base}/keys?search=menu-b`);
      await page.locator(".row-menu summary").click();
      await page.screenshot({ path: `${process.env.SCREENSHOTS}/keys-menu-plain.${view}.png` });
      const label = view === "light" ? "Switch on" : "Switch off";
      await page.locator(".row-menu").getByRole("button", { name: label }).click();
      await page.waitForURL("**/keys?search=menu-b");
    });
  }
});

test("views are saved for keys, members and channels", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    for (const [path, query] of [["keys", "state=active"], ["members", "role=admin"], ["channels", "state=off"]]) {
      await page.goto(`${gateway.base}/${path}?${query}`);
      await page.getByText("Save view").click();
      await page.locator("#view-name").fill(`Mine of ${path}`);
      await page.getByRole("button", { name: "Save", exact: true }).click();
      await page.getByText("Saved", { exact: true }).waitFor();
      await page.goto(`${gateway.base}/${path}`);
      await checkPage(page, faults, `${path} with a view`);
      await screenshot(page, `${path}-views.light`);
      await page.getByRole("link", { name: `Mine of ${path}` }).click();
      await page.waitForURL(`**/${path}?${query}`);
    }
    await page.setViewportSize(VIEWS.phone.viewport);
    await page.goto(`${gateway.base}/keys`);
    await checkPage(page, faults, "keys with a view on a phone");
    await screenshot(page, "keys-views.phone");
  });
});

test("a form that was sent after the session had ended is restored with what was typed, without secrets", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  const lose = async () => {
    await context.clearCookies();
    await page.locator("main button.primary").click();
    await page.getByText("You were signed out").waitFor();
    assert.match(await page.locator("[data-form-lost]").textContent(), /this tab has kept what you typed/);
  };
  const again = async () => {
    await page.locator("#login").fill("owner");
    await page.locator("#password").fill(PASSWORD);
    await page.locator("main button.primary").click();
  };
  for (const name of ["draft-a", "draft-b"]) await callApi(page, "POST", "/admin/v1/groups", { name, channels: ["chat"] });
  const groups = () => page.locator("[data-order] input").evaluateAll((boxes) => boxes.map(({ value, checked }) => `${value} ${checked}`));
  await page.goto(`${gateway.base}/keys/new`);
  await page.locator("#name").fill("came-back");
  await page.getByRole("checkbox", { name: "draft-b" }).check();
  const up = page.getByRole("button", { name: "Move draft-b up" });
  for (let tries = 0; tries < 20 && await up.getAttribute("aria-disabled") === "false"; tries += 1) await up.click();
  const ordered = await groups();
  assert.equal(ordered[0], "draft-b true");
  await page.getByText("More options").click();
  await page.locator("#rpm").fill("60");
  await page.locator("#valid_for").selectOption("30");
  await page.locator("input[name=protocols]").first().check();
  await lose();
  await checkPage(page, faults, "sign-in after a lost form");
  await screenshot(page, "form-lost.light");
  // A wrong password in between does not lose the form.
  await page.locator("#login").fill("owner");
  await page.locator("#password").fill("wrong");
  await page.locator("main button.primary").click();
  await page.locator(".banner.bad").first().waitFor();
  await again();
  await page.waitForURL("**/keys/new");
  await page.getByText("The form has what you typed.").waitFor();
  assert.equal(await page.locator("#name").inputValue(), "came-back");
  assert.equal(await page.locator("#rpm").inputValue(), "60");
  assert.equal(await page.locator("#valid_for").inputValue(), "30");
  assert.ok(await page.locator("input[name=protocols]").first().isChecked());
  assert.ok(await page.locator("#rpm").isVisible(), "the part of the form that was folded is open");
  assert.deepEqual(await groups(), ordered);
  assert.equal(await up.getAttribute("aria-disabled"), "true", "the first one cannot be moved up");
  await checkPage(page, faults, "form that came back");
  await screenshot(page, "form-restored.light");
  await page.locator("main button.primary").click();
  await page.getByText("The key is ready").waitFor();
  // The script of the next page removes the draft.
  await page.waitForFunction(() => sessionStorage.getItem("tollgate.draft") === null);

  await page.goto(`${gateway.base}/channels/new`);
  await page.locator("#name").fill("lost-channel");
  await page.locator("#credential").fill("sk-a-secret-credential");
  await lose();
  assert.ok(!(await page.evaluate(() => JSON.stringify({ ...sessionStorage }))).includes("a-secret-credential"));
  await again();
  await page.waitForURL("**/channels/new");
  assert.equal(await page.locator("#name").inputValue(), "lost-channel");
  assert.equal(await page.locator("#credential").inputValue(), "");

  // A change by another person meanwhile is not overwritten.
  const other = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(other.page, gateway);
  const { id } = await callApi(other.page, "POST", "/admin/v1/groups", { name: "drafted", channels: ["chat"] });
  await page.goto(`${gateway.base}/groups/${id}`);
  await page.locator("#description").fill("typed before");
  await callApi(other.page, "PATCH", "/admin/v1/groups/drafted", { sale_multiplier: "0.5" });
  await lose();
  await again();
  await page.waitForURL(`**/groups/${id}`);
  await page.getByText("The form has what you typed.").waitFor();
  assert.equal(await page.locator("#description").inputValue(), "typed before");
  await page.locator("main button.primary").first().click();
  await page.getByText("It was changed since this page was loaded.").waitFor();
  assert.equal((await callApi(other.page, "GET", "/admin/v1/groups/drafted")).sale_multiplier, "0.5");
  await other.context.close();
  await context.close();
});

test("a form that is answered by an error page is restored with what was typed, without secrets", async () => {
  await asOwner(browser, gateway, { ...VIEWS.light, intercepts: true }, async (page, faults) => {
    await page.goto(`${gateway.base}/channels/new`);
    await page.locator("#name").fill("not-lost-channel");
    await page.locator("#credential").fill("sk-a-secret-credential");
    // The page of a refused form, as for one that the gateway cannot process at the moment.
    await page.route("**/channels/new", async (route) => {
      if (route.request().method() !== "POST") return route.continue();
      const answer = await route.fetch({ postData: route.request().postData().replace(/csrf=[^&]*/, "csrf=x") });
      return route.fulfill({ response: answer, status: 503 });
    });
    await page.locator("main button.primary").click();
    await page.getByText("This tab has kept what you typed, except secrets.").waitFor();
    await checkPage(page, faults, "form answered by an error");
    await screenshot(page, "form-not-taken.light");
    assert.ok(!(await page.evaluate(() => JSON.stringify({ ...sessionStorage }))).includes("a-secret-credential"));
    // The form's page may fail, too.
    await page.unroute("**/channels/new");
    await page.goto(`${gateway.base}/keys/key_unknown`);
    await page.goto(`${gateway.base}/channels/new`);
    await page.getByText("The form has what you typed.").waitFor();
    assert.equal(await page.locator("#name").inputValue(), "not-lost-channel");
    assert.equal(await page.locator("#credential").inputValue(), "");
    await page.goto(`${gateway.base}/channels/new`);
    assert.equal(await page.locator("#name").inputValue(), "", "only once");
  });
});
