// Pages of callers as people use them: the playground over every protocol, the first steps, keys, the usage log, and the check of a key.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, openPage, screenshot } from "./browser.mjs";
import { setPassword, signIn } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";

let key;

useGateway({ isSetUp: false });

async function chat(model, stream = false) {
  const answer = await fetch(`${gateway.base}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model, stream, messages: [{ role: "user", content: "Say hello." }] }),
  });
  await answer.text();
}

test("the first request completes the first steps", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await setPassword(page, gateway);
  await page.goto(`${gateway.base}/console`);
  await page.getByText("First steps").waitFor();
  await checkPage(page, faults, "home, no key");
  await screenshot(page, "home-begin.light");
  await page.getByRole("link", { name: "New key" }).first().click();
  await page.locator("#name").fill("notebook");
  await page.keyboard.press("Enter");
  await page.getByText("The key is ready").waitFor();
  key = await page.locator("code.input").textContent();
  for (const protocol of ["Gemini", "Messages"]) {
    await page.locator(".use label", { hasText: protocol }).first().click();
    await checkPage(page, faults, `key, ${protocol}`);
  }
  await page.getByText("Claude Code", { exact: true }).click();
  await page.getByText("export ANTHROPIC_AUTH_TOKEN=").waitFor();
  await screenshot(page, "key-use.light");
  let refusals = 0;
  await page.route("**/admin/v1/usage/tail*", (route) => {
    refusals += 1;
    return refusals === 1 ? route.fulfill({ status: 503 }) : route.continue();
  });
  await page.goto(`${gateway.base}/console`);
  await page.evaluate(() => { window.kept = true; });
  await page.getByText("Connection lost, trying again").waitFor();
  await checkPage(page, faults, "home, connection lost");
  await page.locator("[data-step-live]:not(.paused)").waitFor();
  await page.getByText("Waiting for the first request").waitFor();
  await chat("acme-large");
  await page.getByText("The first request was answered.").waitFor();
  assert.equal(await page.locator("[data-steps] li.done").count(), 3);
  assert.ok(await page.evaluate(() => window.kept), "the page continues without being reloaded");
  await screenshot(page, "home-first.light");
  for (const model of ["acme/small:free", "acme-large", "no-such-model"]) await chat(model, model === "acme-large");
  await context.close();
});

test("playground: every protocol, streamed, compared, and shown as code", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/playground?model=acme-large&model=acme/small:free`);
  await page.locator(".answer").nth(1).waitFor();
  await page.locator("#message").fill("Say hello to both.");
  await page.keyboard.press("Control+Enter");
  await page.getByText("Requests run under your own key").waitFor();
  const [made] = await Promise.all([
    page.waitForResponse("**/admin/v1/me/playground-key"),
    page.getByRole("button", { name: "Make a key for 12 hours" }).click(),
  ]);
  const { key: secret } = await made.json();
  await page.getByText("console-playground · default").waitFor();
  for (const protocol of ["Chat", "Gemini", "Messages"]) {
    await page.locator(".protocols label", { hasText: protocol }).click();
    await page.locator("#message").fill(`Say hello over ${protocol}.`);
    await page.locator("#message").focus();
    await page.keyboard.press("Control+Enter");
    const turns = page.locator(".answer >> nth=0 >> .said");
    await page.waitForFunction(() => [...document.querySelectorAll(".answer")].every((card) => card.querySelector("[data-state].ok:not([hidden])")));
    assert.ok((await turns.last().textContent()).length > 3, `${protocol}: ${await turns.last().textContent()}`);
    await page.locator("[data-cost]").first().filter({ hasText: "$" }).waitFor();
  }
  await checkPage(page, faults, "playground, answered");
  await screenshot(page, "playground-answered.light");
  await page.getByRole("button", { name: "Raw stream" }).click();
  await page.locator("[data-shown]", { hasText: "event: message_stop" }).waitFor();
  await page.getByRole("button", { name: "Headers", exact: true }).click();
  await page.locator("[data-shown]", { hasText: "x-request-id" }).waitFor();
  const shown = () => page.locator("[data-shown]").textContent();
  for (const [language, says] of [["curl", "x-api-key: $TOLLGATE_KEY"], ["Python", "import httpx"], ["Node", "process.env.TOLLGATE_KEY"]]) {
    await page.getByRole("button", { name: language, exact: true }).click();
    await page.locator("[data-shown]", { hasText: says }).waitFor();
    assert.ok((await page.locator("[data-shown] .cs").count()) > 2 && (await page.locator("[data-shown] .ck").count()) > 0, `${language} has colours`);
    await checkPage(page, faults, `playground, ${language}`);
    await screenshot(page, `playground-${language.toLowerCase()}.light`);
    assert.ok(!(await shown()).includes("x-tollgate-tags"), `${language}: programs are not booked as the playground`);
  }
  assert.ok(!(await page.content()).includes(secret), "the key is in the memory of the tab only");
  assert.equal(await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage })).then((kept) => kept.includes("sk-")), false);
  await page.getByRole("button", { name: "Share setup" }).click();
  assert.match(page.url(), /model=acme-large&model=acme%2Fsmall%3Afree&protocol=anthropic/);
  await page.getByRole("button", { name: "New", exact: true }).click();
  await page.getByRole("button", { name: /^Say hello over Chat|^Say hello to both/ }).first().click();
  await page.locator(".answer .said").first().waitFor();
  await page.locator("[data-earlier-list] time", { hasText: /^\d{1,2} \w+ \d{4}, \d{2}:\d{2}$/ }).first().waitFor();
  await context.close();
});

test("playground: the panel shows the request that was sent", async () => {
  const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/playground?model=acme-large`);
  await page.locator("#message").fill("q0");
  const shown = () => page.locator("[data-shown]").textContent();
  const view = (name) => page.getByRole("button", { name, exact: true }).click();
  const body = async () => JSON.parse((await shown()).split("\n\n")[1]);
  assert.deepEqual((await body()).messages, [{ role: "user", content: "q0" }], "the one that would be sent");
  await Promise.all([page.waitForResponse("**/v1/key"), page.locator("[data-make-key]").click()]);
  const sent = [];
  page.on("request", (request) => { if (request.url().endsWith("/v1/chat/completions")) sent.push(request); });
  for (const text of ["q1", "q2"]) {
    await page.locator("#message").fill(text);
    await page.locator("#message").press("Control+Enter");
    await page.waitForFunction((text) => {
      const turns = [...document.querySelectorAll(".you")].map((turn) => turn.textContent);
      return turns.includes(text) && document.querySelector("[data-state].ok:not([hidden])");
    }, text);
    assert.deepEqual(await body(), sent.at(-1).postDataJSON());
    assert.match(await shown(), /x-tollgate-tags: source=playground/);
    await view("curl");
    const [, copied] = (await shown()).match(/-d '(.*)'$/s);
    assert.deepEqual(JSON.parse(copied), sent.at(-1).postDataJSON());
    assert.ok(!(await shown()).includes("x-tollgate-tags"));
    await view("Request");
  }
  assert.deepEqual(sent.map((request) => request.postDataJSON().messages.map(({ role }) => role)), [["user"], ["user", "assistant", "user"]]);
  await page.locator("#message").fill("a draft");
  assert.deepEqual(await body(), sent.at(-1).postDataJSON(), "a draft is not sent yet");
  await page.locator("[data-others] button", { hasText: "/v1/messages" }).click();
  assert.deepEqual((await body()).messages.map(({ role }) => role), ["user", "assistant", "user"], "the same request over another protocol");
  await context.close();
});

test("playground: a message that is edited is taken back from every model", async () => {
  const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/playground?model=acme-large&model=acme/small:free`);
  await page.locator(".answer").nth(1).waitFor();
  await Promise.all([page.waitForResponse("**/v1/key"), page.locator("[data-make-key]").click()]);
  const turns = () => page.locator(".answer").evaluateAll((cards) => cards.map((card) => [...card.querySelectorAll(".you")].map((turn) => turn.textContent)));
  const send = async (text) => {
    await page.locator("#message").fill(text);
    await page.locator("#message").press("Control+Enter");
    await page.locator(".answer .you", { hasText: text }).nth(1).waitFor();
    await page.waitForFunction(() => [...document.querySelectorAll(".answer")].every((card) => card.querySelector("[data-state].ok:not([hidden])")));
  };
  await send("q1");
  await send("q2");
  await page.locator("[data-edit]").first().click();
  assert.equal(await page.locator("#message").inputValue(), "q2");
  assert.deepEqual(await turns(), [["q1"], ["q1"]]);
  await send("q3");
  assert.deepEqual(await turns(), [["q1", "q3"], ["q1", "q3"]]);
  await context.close();
});

test("playground: each model is added once", async () => {
  const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/playground?model=acme-large`);
  const models = () => page.locator(".answer [data-model]").evaluateAll((selects) => selects.map((select) => select.value));
  const add = page.getByRole("button", { name: "Add model" });
  await page.locator(".answer").waitFor();
  while (await add.isEnabled()) await add.click();
  const chosen = await models();
  assert.ok(chosen.length > 1 && new Set(chosen).size === chosen.length, chosen.join());
  await context.close();
});

test("playground: a message that is sent while the key is still looked up waits for it", async () => {
  const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en", intercepts: true });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/playground?model=acme-large`);
  await page.locator(".answer").waitFor();
  let answer;
  const held = new Promise((resolve) => { answer = resolve; });
  await page.route("**/v1/key", async (route) => { await held; await route.continue(); });
  await page.locator("#message").fill("Say hello early.");
  await Promise.all([page.waitForRequest("**/v1/key"), page.locator("[data-make-key]").click()]);
  await page.locator("#message").focus();
  await page.keyboard.press("Control+Enter");
  await page.keyboard.press("Control+Enter");
  assert.equal(await page.locator("[data-key-missing]").isVisible(), false);
  answer();
  await page.locator("[data-state].ok").waitFor();
  assert.equal(await page.locator(".you").count(), 1, "it was sent once");
  assert.equal(await page.locator("#message").inputValue(), "");
  await context.close();
});

test("playground: a wrong key is reported, a parameter that no model takes is greyed out, tools are checked", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/playground`);
  await page.locator("#secret").fill("sk-tg-wrong");
  await page.keyboard.press("Enter");
  await page.getByText("The gateway does not know this key.").waitFor();
  await page.locator(".protocols label", { hasText: "Messages" }).click();
  assert.ok(await page.locator("#p-format").isDisabled());
  await page.locator("#p-format-hint", { hasText: "This protocol does not have it." }).waitFor();
  await page.locator("summary", { hasText: "Tools" }).click();
  await page.locator("#tools").fill("{not json");
  await page.getByText("This is not JSON").waitFor();
  await page.locator("#tools").fill('[{"name": "get_weather", "parameters": {"type": "object"}}]');
  await page.locator("[data-shown]", { hasText: "input_schema" }).waitFor();
  await checkPage(page, faults, "playground, tools");
  await context.close();
});

test("playground: faults of a key are in the language of the page", async () => {
  const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "zh-CN", intercepts: true });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/playground`);
  await page.locator("#secret").fill("sk-tg-wrong");
  await page.keyboard.press("Enter");
  const fault = page.locator("[data-key-fault]");
  await fault.filter({ hasText: "网关不认识此密钥" }).waitFor();
  assert.equal(await fault.getAttribute("lang"), "zh-CN");
  // An error without a translation is shown with the gateway's text.
  await page.route("**/v1/key", (route) => route.fulfill({ status: 418, json: { error: { code: "new_code", message: "Something new." } } }));
  await page.locator("#secret").fill("sk-tg-other");
  await page.keyboard.press("Enter");
  await fault.filter({ hasText: "Something new." }).waitFor();
  assert.equal(await fault.getAttribute("lang"), "en");
  await context.close();
});

test("playground: each member has separate conversations in a browser, until the member signs out", async () => {
  const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/playground?model=acme-large`);
  const own = await page.evaluate(() => {
    const own = `tollgate.playground.${document.documentElement.dataset.member}`;
    const kept = (title) => JSON.stringify([{ at: Date.now(), title, protocol: "chat", system: "", columns: [] }]);
    localStorage.setItem(own, kept("of the owner"));
    localStorage.setItem("tollgate.playground.mbr_other", kept("of another member"));
    return own;
  });
  await page.reload();
  await page.locator("[data-earlier-list] button", { hasText: "of the owner" }).waitFor();
  assert.equal(await page.locator("[data-earlier-list] li").count(), 1);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL("**/sign-in**");
  assert.deepEqual(await page.evaluate((own) => [own, "tollgate.playground.mbr_other"].map((key) => localStorage.getItem(key) !== null), own), [false, true]);
  await context.close();
});

test("keys: filter, order, several at once, duplicate", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/keys/new`);
  await page.locator("#name").fill("lab");
  await page.getByRole("group", { name: "Groups, in order" }).getByRole("checkbox").first().check();
  await page.getByText("More options").click();
  await page.getByLabel("Valid for").selectOption("90 days");
  await page.locator("#count").fill("3");
  await page.locator("#budget_month_block").fill("20");
  await page.locator("main button.primary").click();
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV", exact: true }).click()]);
  assert.equal(download.suggestedFilename(), "keys.csv");
  await checkPage(page, faults, "keys made");
  await screenshot(page, "keys-made.light");
  await page.goto(`${gateway.base}/keys`);
  await page.getByRole("link", { name: "Spent this month" }).click();
  await page.waitForURL("**sort=spent**");
  await page.getByRole("link", { name: "Last used" }).click();
  await page.waitForURL("**sort=last_used**");
  assert.equal(await page.locator("th[data-column=used]").getAttribute("aria-sort"), "descending");
  await page.locator("#search").fill("lab");
  await page.keyboard.press("Enter");
  await page.waitForURL("**search=lab**");
  assert.equal(await page.locator("tbody tr").count(), 3);
  await page.locator("tbody a").first().click();
  await page.getByRole("link", { name: "Duplicate" }).click();
  assert.match(await page.locator("#name").inputValue(), /^lab-\d copy$/);
  await context.close();
});

test("usage log: dragging selects a time, views are kept, a lost connection is shown and resumed", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en", intercepts: true });
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/log?range=24h`);
  const plot = await page.locator("#rows .bars-plot svg").boundingBox();
  // At the foot of a bar, where its parts are: their links also filter by outcome, but a drag does not.
  assert.ok((await page.locator("#rows .bars-plot a").count()) > (await page.locator("#rows .bars-plot .hit").count()));
  await page.mouse.move(plot.x + plot.width * 0.2, plot.y + plot.height - 2);
  await page.mouse.down();
  await page.mouse.move(plot.x + plot.width * 0.6, plot.y + plot.height - 2, { steps: 5 });
  await page.locator("rect.brush").waitFor();
  await page.mouse.up();
  await page.waitForURL("**since=**");
  const { searchParams } = new URL(page.url());
  assert.equal(searchParams.get("outcome"), null);
  const hours = (Date.parse(searchParams.get("until")) - Date.parse(searchParams.get("since"))) / 3_600_000;
  assert.ok(hours > 8 && hours < 12, `${hours} hours of 24`);
  await page.getByText("Save view").click();
  await page.locator("#view-name").fill("Morning");
  await page.getByLabel("Operators and admins see it, too").check();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByText("Saved", { exact: true }).waitFor();
  await page.goto(`${gateway.base}/log`);
  await checkPage(page, faults, "usage log with a view");
  await screenshot(page, "log-views.light");
  await page.getByRole("link", { name: "Morning" }).click();
  await page.waitForURL("**since=**");
  await page.goto(`${gateway.base}/log?range=15m`);
  await page.route("**/admin/v1/usage/tail**", (route) => route.abort());
  await page.getByRole("button", { name: "Follow" }).click();
  await page.locator("[data-follow]", { hasText: "Connection lost" }).waitFor();
  await page.unroute("**/admin/v1/usage/tail**");
  await page.getByRole("button", { name: "Live" }).waitFor({ timeout: 20_000 });
  await checkPage(page, faults, "log, resumed");
  await context.close();
});

test("usage log: Custom leads to the fields for a fixed time, with JavaScript and without, also on a phone", async () => {
  for (const javaScriptEnabled of [true, false]) {
    for (const view of [VIEWS.light, VIEWS.phone]) {
      const { context, page, faults } = await openPage(browser, { ...view, locale: "en", javaScriptEnabled });
      await signIn(page, gateway);
      await page.goto(`${gateway.base}/log?range=1h`);
      assert.equal(await page.locator("#since").isVisible(), false);
      if (view === VIEWS.phone) await page.locator("#rows details.menu-down summary").click();
      await page.getByRole("link", { name: "Custom" }).click();
      await page.waitForURL("**since=**");
      await page.locator("#since").waitFor({ state: "visible" });
      assert.match(await page.locator("#since").inputValue(), /^\d{4}-\d\d-\d\dT\d\d:\d\d$/);
      // A browser that does not open a closed part for the fragment of an address shows them, too.
      await page.goto(page.url().split("#")[0]);
      assert.equal(await page.locator("#until").isVisible(), true);
      if (javaScriptEnabled) await checkPage(page, faults, "log, fields for a fixed time");
      if (javaScriptEnabled && view === VIEWS.light) await screenshot(page, "log-custom.light");
      await context.close();
    }
  }
});

test("usage log: every filter that cannot be is marked, and an unknown one is named", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(page, gateway);
  const marked = () => page.locator("#filter [aria-invalid]").evaluateAll((fields) => fields.map((field) => field.name));
  await page.goto(`${gateway.base}/log?status=abc&min_tokens=x&since=2026-11-02T00:00&until=2026-11-01T00:00`);
  assert.deepEqual((await marked()).sort(), ["min_tokens", "since", "status", "until"]);
  await page.getByText("“From” is after “Until”").first().waitFor();
  await checkPage(page, faults, "log with faults");
  await screenshot(page, "log-faults.light");
  // Only the list is reloaded when a field changes; the marks are updated.
  await page.goto(`${gateway.base}/log`);
  await page.locator("#filter [name=status]").fill("abc");
  await page.keyboard.press("Enter");
  await page.locator("#filter [name=status][aria-invalid]").waitFor();
  await page.locator("#filter [name=status]").fill("200");
  await page.keyboard.press("Enter");
  await page.locator("#filter [name=status]:not([aria-invalid])").waitFor();
  await page.goto(`${gateway.base}/log?tag=x`);
  await page.getByText("Did you mean “tags”?").waitFor();
  await checkPage(page, faults, "log with an unknown filter");
  await context.close();
});

test("usage log: the table fits at 1440 px, with JavaScript and without", async () => {
  for (const javaScriptEnabled of [true, false]) {
    for (const locale of ["en", "zh-CN"]) {
      const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en", javaScriptEnabled });
      await signIn(page, gateway);
      await context.addCookies([{ name: "tollgate_language", value: locale, url: gateway.base }]);
      await page.goto(`${gateway.base}/log?range=24h`);
      const [needed, there] = await page.locator("table[data-table=log]").evaluate((table) => [table.parentElement.scrollWidth, table.parentElement.clientWidth]);
      assert.ok(needed <= there, `${locale}, JavaScript ${javaScriptEnabled}: ${needed} px in ${there} px`);
      await context.close();
    }
  }
});

test("a key is checked without an account and without JavaScript", async () => {
  for (const javaScriptEnabled of [true, false]) {
    const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en", javaScriptEnabled });
    await page.goto(`${gateway.base}/key`);
    await page.locator("#key").fill("sk-tg-wrong");
    await page.keyboard.press("Enter");
    await page.getByText("The gateway does not know this key.").waitFor();
    await page.locator("#key").fill(key);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Last requests" }).waitFor();
    assert.ok(!page.url().includes("sk-") && !(await page.content()).includes(key));
    if (javaScriptEnabled) {
      await checkPage(page, faults, "key check");
      await screenshot(page, "key-check.light");
    }
    await context.close();
  }
});

for (const [view, options] of Object.entries(VIEWS)) {
  for (const locale of ["en", "zh-CN"]) {
    test(`pages of callers: ${view}, ${locale}`, async () => {
      const { context, page, faults } = await openPage(browser, { ...options, locale: "en" });
      await signIn(page, gateway);
      await context.addCookies([{ name: "tollgate_language", value: locale, url: gateway.base }]);
      for (const [name, path] of [
        ["callers-home", "/console"],
        ["callers-home-tokens", "/console?by=tokens"],
        ["playground", "/playground?model=acme-large&model=acme/small:free"],
        ["callers-keys", "/keys"],
        ["callers-key-new", "/keys/new"],
        ["callers-log", "/log?range=1h"],
        ["key-check", "/key"],
        ["callers-models", "/models?unit=1k"],
        ["callers-model", "/models/acme-large"],
        ["callers-status", "/status"],
      ]) {
        await page.goto(gateway.base + path);
        assert.equal(await page.locator("html").getAttribute("lang"), locale);
        if (name === "playground") await page.locator(".answer [data-price]:not(:empty)").first().waitFor();
        await checkPage(page, faults, `${name}, ${view}, ${locale}`);
        await screenshot(page, `${name}.${view}${locale === "en" ? "" : ".zh"}`);
      }
      await context.close();
    });
  }
}
