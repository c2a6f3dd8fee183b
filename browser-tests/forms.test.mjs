// Every form with a text field: when it is refused, it keeps what was typed and shows the fault beside the field.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, openPage } from "./browser.mjs";
import { addressOf, makeRows, pageRoutes } from "./every-page.mjs";
import { PASSWORD, asOwner, callApi } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";

// By the target of the form: what is typed, and the fields that are refused for it. A star stands for the rest of a name.
const passwords = { new_password: "correct horse battery", new_password_again: "correct horse battery" };
const FORMS = {
  "/alerts/destinations/new": { typed: { name: "kept", url: "nowhere" }, wrong: ["url"] },
  "/alerts/destinations/{name}": { typed: { url: "nowhere" }, wrong: ["url"] },
  "/channel-selection/edit": { typed: { weight: "heavy" }, wrong: ["weight"] },
  "/channels/new": { typed: { name: "kept", base_url: "nowhere" }, wrong: ["base_url"] },
  "/channels/{name}/accounts/new": { typed: { name: "kept", rpm: "many" }, wrong: ["rpm"] },
  "/channels/{name}/accounts/{account}": { typed: { rpm: "many" }, wrong: ["rpm"] },
  "/channels/{name}/edit": { typed: { weight: "heavy", tags: "kept" }, wrong: ["weight"] },
  "/channels/{name}/file": { typed: { file: "nonsense = [" }, wrong: ["file"] },
  "/channels/{name}/models": { typed: { input: "cheap" }, wrong: ["input"] },
  "/channels/{name}/models/add": { typed: { model: "kept", upstream: "a/../b" }, wrong: ["upstream"] },
  "/groups/new": { typed: { name: "kept", sale_multiplier: "cheap" }, wrong: ["sale_multiplier"] },
  "/groups/{name}": { typed: { description: "kept", sale_multiplier: "cheap" }, wrong: ["sale_multiplier"] },
  "/invite": { typed: { name: "kept", email: "nowhere", ...passwords }, wrong: ["email"] },
  "/keys": { typed: { name: "kept", rpm: "many" }, wrong: ["rpm"] },
  "/keys/new": { typed: { name: "kept", rpm: "many" }, wrong: ["rpm"] },
  "/keys/{key}": { typed: { rpm: "many" }, wrong: ["rpm"] },
  "/members/admin-keys": { typed: { name: "" }, wrong: ["name"] },
  "/members/invites": { typed: { note: "kept", expires: "2020-01-01" }, wrong: ["expires"] },
  "/members/new": { typed: { name: "kept", rpm: "many" }, wrong: ["rpm"] },
  "/members/{name}": { typed: { rpm: "many" }, wrong: ["rpm"] },
  "/members/{name}/ledger": { typed: { amount: "much", note: "kept" }, wrong: ["amount"] },
  "/members/{name}/login": { typed: { email: "nowhere" }, wrong: ["email"] },
  "/pricing/groups": { typed: { "factor_*": "cheap" }, wrong: ["factor_*"] },
  "/pricing/import": { typed: { source: "csv", file: "kept" }, wrong: ["file"] },
  "/pricing/model": { typed: { input: "cheap", output: "7" }, wrong: ["input"] },
  "/pricing/model/facts": { typed: { context: "long", description: "kept" }, wrong: ["context"] },
  "/profile/codes": { typed: { code: "000000", password: PASSWORD }, wrong: ["code"] },
  "/profile/notices": { typed: { notice_percents: "half" }, wrong: ["notice_percents"] },
  "/profile/time-zone": { typed: { time_zone: "Atlantis" }, wrong: ["time_zone"] },
  // Faults are listed by line and channel.
  "/proxies": { typed: { lines: "edge" }, wrong: [] },
  "/register": { typed: { name: "kept", email: "nowhere", ...passwords }, wrong: ["email"] },
  "/reset-password": { typed: { new_password: "short", new_password_again: "short" }, wrong: ["new_password"] },
  "/settings/{name}": { typed: { value: "many" }, wrong: ["value"] },
  "/setup/channel": { typed: { name: "kept", base_url: "nowhere" }, wrong: ["base_url"] },
  "/setup/channel/{name}": { typed: { input: "cheap" }, wrong: ["input"] },
  "/setup/channel/{name}/add": { typed: { model: "kept", upstream: "a/../b" }, wrong: ["upstream"] },
  "/setup/gateway": { typed: { name: "kept", api_url: "nowhere" }, wrong: ["api_url"] },
  "/setup/key": { typed: { name: "" }, wrong: ["name"] },
  // The answer does not reveal which of the two is wrong.
  "/sign-in": { typed: { login: "owner", password: "wrong" }, wrong: [] },
  "/system/import": { typed: { source: "csv", file: "" }, wrong: ["file"] },
  "/system/replay": { typed: { file: "" }, wrong: ["file"] },
};
// These forms search, or save an address as a view, so there is nothing to refuse. Passkeys have separate tests.
const NEVER_REFUSED = ["/channels/{name}/models/fetch", "/profile/passkeys", "/search", "/setup/channel/{name}/fetch"];
const isNeverRefused = (target) => NEVER_REFUSED.includes(target) || target.endsWith("views");

let rows;

useGateway({
  prepare: () => asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/profile`);
    rows = await makeRows(page, gateway);
  }),
});

const targets = pageRoutes("POST").map(({ path }) => ({ path, is: new RegExp(`^${path.replace(/\{.+?\}/g, "[^/]+")}$`) }));

// The route of a form's target: of those that fit, the one with the fewest parameters.
function targetOf(action) {
  const fitting = targets.filter(({ is }) => is.test(action.split("?")[0])).sort((a, b) => a.path.split("{").length - b.path.split("{").length);
  assert.ok(fitting.length > 0, `${action} is not a target of forms`);
  return fitting[0].path;
}

// The targets of a page's forms that have a text field, and the names of these fields.
const typedForms = (page) => page.evaluate(() => {
  const isTyped = (field) => field.localName === "textarea" || (field.localName === "input" && ["text", "number", "email", "search", "date", "datetime-local"].includes(field.type));
  return [...document.querySelectorAll("form[method=post]")].map((form) => [
    form.getAttribute("action"), [...form.elements].filter((field) => isTyped(field) && field.name).map(({ name }) => name),
  ]).filter(([, fields]) => fields.length > 0);
});

// What a form would send, without secrets.
const valuesOf = (form) => form.evaluate((element) => {
  const secret = [...element.querySelectorAll("input[type=password], input[type=hidden]")].map(({ name }) => name);
  return [...new FormData(element)].filter(([name]) => !secret.includes(name)).map((pair) => pair.join("="));
});

// Sends a form with these values, and reads how its fields come back.
async function refuse(page, address, action, { typed, wrong }) {
  await page.goto(gateway.base + address);
  const form = page.locator(`form[method=post][action="${action}"]`).first();
  for (const [name, value] of Object.entries(typed)) {
    const field = form.locator(name.endsWith("*") ? `[name^="${name.slice(0, -1)}"]` : `[name="${name}"]`);
    if (await field.count() === 0) return [`there is no field ${name}`];
    await field.first().evaluate((field, value) => { field.value = value; }, value);
  }
  const sent = await valuesOf(form);
  await Promise.all([page.waitForNavigation({ timeout: 5000 }), form.evaluate((element) => {
    element.noValidate = true;
    element.requestSubmit(element.querySelector("button.primary, button[type=submit]:not([formaction])"));
  })]);
  const found = [];
  // Reloading the answer, and choosing a language on it, lead to a page.
  const reloaded = await page.request.get(gateway.base + await page.locator("html").getAttribute("data-reloads-from"));
  if (reloaded.status() !== 200) found.push(`${reloaded.url()} answers ${reloaded.status()}`);
  const again = page.locator(`form[method=post][action="${action}"]`).first();
  if (await again.count() === 0) return ["the form is gone"];
  const kept = await valuesOf(again);
  const lost = sent.filter((pair) => !kept.includes(pair));
  if (lost.length > 0) found.push(`lost ${lost.join("; ")}`);
  const said = await again.locator("[aria-invalid=true]").evaluateAll((fields) => fields.filter((field) => field.checkVisibility()).map((field) => {
    const says = (field.getAttribute("aria-describedby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join("").trim();
    return says && field.name;
  }));
  const silent = wrong.filter((name) => !said.some((of) => of === name || (name.endsWith("*") && String(of).startsWith(name.slice(0, -1)))));
  return [...found, ...silent.map((name) => `no fault is shown beside ${name}`)];
}

test("forms keep what was typed and show the fault beside the field", async () => {
  const found = new Map();
  const collect = async (page, routes) => {
    for (const route of routes) {
      const address = addressOf(route, rows);
      await page.goto(gateway.base + address);
      for (const [action, fields] of await typedForms(page)) if (!found.has(targetOf(action))) found.set(targetOf(action), { address, action, fields });
    }
  };
  const wrong = [];
  const check = async (page, isOf) => {
    for (const [target, { address, action, fields }] of found) {
      if (!isOf(target) || isNeverRefused(target)) continue;
      // Those that confirm a removal.
      const isConfirmation = fields.every((name) => name === "typed_name");
      const row = isConfirmation ? { typed: { typed_name: "another name" }, wrong: ["typed_name"] } : FORMS[target];
      const faults = row ? await refuse(page, address, action, row).catch((error) => [error.message]) : [`not in the table; its fields are ${fields.join(", ")}`];
      wrong.push(...faults.map((fault) => `${target}: ${fault}`));
    }
  };
  const routes = pageRoutes("GET").filter(({ path }) => !path.endsWith(".csv") && !path.includes("{passkey}"));
  await asOwner(browser, gateway, { ...VIEWS.light, javaScriptEnabled: false }, async (page) => {
    await collect(page, routes);
    await check(page, () => true);
  });
  const ofMembers = new Set(found.keys());
  const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en", javaScriptEnabled: false });
  await collect(page, routes.filter(({ seenBy }) => seenBy === "anyone"));
  await check(page, (target) => !ofMembers.has(target));
  await context.close();
  wrong.push(...Object.keys(FORMS).filter((target) => !found.has(target)).map((target) => `${target} is in the table but on no page`));
  assert.deepEqual(wrong, []);
});

test("a posting whose answer is lost is posted once when the form is sent again", async () => {
  await asOwner(browser, gateway, { ...VIEWS.light, intercepts: true }, async (page) => {
    const { id } = await callApi(page, "POST", "/admin/v1/members", { name: "paid once", billing: "prepaid" });
    await page.goto(`${gateway.base}/members/${id}`);
    const form = page.locator(`form[action$="/members/${id}/ledger"]`);
    await form.locator("#amount").fill("12.50");
    await form.locator("#note").fill("invoice 7");
    // The gateway posts it, and the browser gets the page of an error: that of a form without its token.
    await page.route("**/ledger", async (route) => {
      if (route.request().method() !== "POST") return route.continue();
      const posted = await route.fetch({ maxRedirects: 0 });
      assert.equal(posted.status(), 303, await posted.text());
      const answer = await route.fetch({ postData: route.request().postData().replace(/csrf=[^&]*/, "csrf=x") });
      return route.fulfill({ response: answer, status: 503 });
    });
    await form.locator("button.primary").click();
    await page.getByText("This tab has kept what you typed").waitFor();
    await page.unroute("**/ledger");
    await page.getByRole("link", { name: "Back to the form" }).click();
    await page.getByText("The form has what you typed.").waitFor();
    assert.equal(await form.locator("#amount").inputValue(), "12.50");
    const [again] = await Promise.all([page.waitForResponse("**/ledger"), form.locator("button.primary").click()]);
    assert.equal(again.status(), 303);
    const { items } = await callApi(page, "GET", `/admin/v1/ledger?member=${id}`);
    assert.deepEqual(items.map(({ amount, note }) => [amount, note]), [["12.50", "invoice 7"]]);
  });
});

// Ends the session of a page, sends its form, and signs in again.
async function loseAndComeBack(page, context, form) {
  const address = page.url();
  await context.clearCookies();
  await form.locator("button.primary").click();
  await page.getByText("this tab has kept what you typed").waitFor();
  await page.locator("#login").fill("owner");
  await page.locator("#password").fill(PASSWORD);
  await page.locator("main button.primary").click();
  await page.waitForURL((url) => !url.pathname.endsWith("/sign-in"));
  assert.equal(new URL(page.url()).pathname, new URL(address).pathname);
}

test("a form that comes back does not overwrite a change by another person meanwhile", async () => {
  await asOwner(browser, gateway, VIEWS.light, (other) => asOwner(browser, gateway, VIEWS.light, async (page, faults, context) => {
    const [model, group] = [encodeURIComponent(rows.model), encodeURIComponent(rows.group)];
    const price = async () => (await callApi(other, "GET", `/admin/v1/prices?model=${model}`)).items[0].price.input;
    const factor = async () => (await callApi(other, "GET", `/admin/v1/groups/${group}`)).sale_multiplier;
    for (const { path, label, typed, read, change } of [
      {
        path: `/pricing/model?model=${model}`, label: "Input", typed: "7", read: price,
        change: (value) => callApi(other, "PUT", `/admin/v1/prices/${model}`, { price: { input: value, output: "4" } }),
      },
      {
        path: "/pricing/groups", label: rows.group, typed: "0.7", read: factor,
        change: (value) => callApi(other, "PATCH", `/admin/v1/groups/${group}`, { sale_multiplier: value }),
      },
    ]) {
      await page.goto(gateway.base + path);
      const form = page.locator("main form[method=post]", { has: page.locator("button.primary") }).first();
      const field = form.getByLabel(label, { exact: true }).first();
      await field.fill(typed);
      await change("3");
      const changed = await read();
      await loseAndComeBack(page, context, form);
      await page.getByText("The form has what you typed.").waitFor();
      assert.equal(await field.inputValue(), typed, path);
      await form.locator("button.primary").click();
      await page.getByText("It was changed since this page was loaded.").waitFor();
      assert.equal(await field.inputValue(), typed, path);
      assert.equal(await read(), changed, path);
    }
    // The row of a field may be another one meanwhile.
    await page.goto(`${gateway.base}/pricing/groups`);
    const form = page.locator("main form[method=post]", { has: page.locator("button.primary") }).first();
    const field = form.getByLabel(rows.group, { exact: true });
    await field.fill("0.7");
    await callApi(other, "POST", "/admin/v1/groups", { name: "a group before it", channels: [rows.channel] });
    await loseAndComeBack(page, context, form);
    await form.getByLabel("a group before it", { exact: true }).waitFor();
    assert.notEqual(await form.getByLabel("a group before it", { exact: true }).inputValue(), "0.7");
  }));
});
