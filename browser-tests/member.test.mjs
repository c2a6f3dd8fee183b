// The console of a member in a group whose members manage their own keys: from the invite to the revoked key by the pages alone, what stays
// hidden of providers and of other people, and every page of members in both themes, in Chinese and on a phone.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkBothThemes, checkLayout, checkPage, checkWithoutColours, openPage, screenshot } from "./browser.mjs";
import { addressOf, englishOn, isNoPage, makePasskey, makeRows, pageRoutes, unfold, until } from "./every-page.mjs";
import { PASSWORD, asMember, asOwner, callApi } from "./owner.mjs";
import { browser, chat, gateway, useGateway } from "./suite.mjs";

const MODEL = "crew-model";
const HELLO = [{ role: "user", content: "Say hello." }];
// Names of the provider's side begin with "vaulted", and its costs are these, which no part of a time looks like.
const COST = { input: "77.71", output: "88.82" };
// The texts that no page of the member has.
const hidden = ["vaulted", COST.input, COST.output];

// The rows of everything that belongs to others, and those of the member.
let rows;
let invite;
const own = { member: "mia" };

useGateway({ prepare: makeGroup });

// The channel is made through the admin API, the group and the invite by the pages.
async function makeGroup() {
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/profile`);
    rows = await makeRows(page, gateway);
    const call = (method, path, body) => callApi(page, method, `/admin/v1/${path}`, body);
    await call("POST", "channels", {
      name: "vaulted-channel", provider: "compatible", protocol: "openai", base_url: `http://${gateway.provider}/v1`, private_network: true,
      serves: [{ model: MODEL, upstream: "vaulted-upstream", cost: COST }],
    });
    await call("POST", "channels/vaulted-channel/accounts", { name: "vaulted-account", credential: "a credential" });
    await call("PUT", `prices/${MODEL}`, { price: { input: "2", output: "4" } });
    await page.goto(`${gateway.base}/groups/new`);
    await page.locator("#name").fill("crew");
    await page.locator("#description").fill("一组");
    await page.locator("#visibility").selectOption("private");
    await page.getByLabel("vaulted-channel", { exact: true }).check();
    await page.locator("#sale_multiplier").fill("0.5");
    await page.locator("summary", { hasText: "Routing and translation" }).click();
    for (const name of ["self_service", "log_contents"]) await page.locator(`main input[name=${name}]`).check();
    await page.getByRole("button", { name: "Create group" }).click();
    await page.getByRole("link", { name: "View as this group" }).waitFor();
    await page.goto(`${gateway.base}/members/invites`);
    await page.locator("#note").fill("Mia");
    await page.getByLabel("crew", { exact: true }).check();
    await page.getByRole("button", { name: "Invite", exact: true }).click();
    await page.getByText("The invite is ready").waitFor();
    invite = await page.locator("code.input").textContent();
  });
}

// A request of the admin API by the operator.
async function asOperator(use) {
  let answer;
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/profile`);
    answer = await use((method, path) => callApi(page, method, `/admin/v1/${path}`));
  });
  return answer;
}

// The page of the member has nothing of the provider's side, in its source either.
async function checkNothingHidden(page, name) {
  const source = await page.content();
  assert.deepEqual(hidden.filter((text) => source.includes(text)), [], name);
}

test("an invited member makes a key, sees it once, and the first request completes the first steps", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await page.goto(invite);
  await page.getByText("crew").first().waitFor();
  await page.locator("#name").fill(own.member);
  await page.locator("#new_password").fill(PASSWORD);
  await page.locator("#new_password_again").fill(PASSWORD);
  await page.getByRole("button", { name: "Become a member" }).click();
  await page.waitForURL("**/console");
  await page.getByText("First steps").waitFor();
  assert.equal(await page.locator("[data-steps] li.done").count(), 0);
  await checkPage(page, faults, "home of a new member");
  await screenshot(page, "member-home-begin.light");

  await page.locator("[data-steps]").getByRole("link", { name: "New key" }).click();
  await page.locator("#name").fill("notebook");
  assert.deepEqual(await page.locator("input[name=group]").evaluateAll((boxes) => boxes.map((box) => box.value)), ["crew"]);
  assert.equal(await page.locator("#member").count(), 0, "a member makes keys for no one else");
  assert.ok(await page.locator("input[name=group]").isChecked(), "keys of the default group are made by operators");
  await checkPage(page, faults, "new key of a member");
  await page.locator("main button.primary").click();
  await page.getByText("The key is ready").waitFor();
  own.secret = await page.locator("code.input").first().textContent();
  await checkPage(page, faults, "key of a member, made");
  await screenshot(page, "member-key-made.light");
  await page.goto(`${gateway.base}/keys`);
  await page.getByRole("link", { name: "notebook" }).first().click();
  await page.getByRole("button", { name: "Switch off" }).waitFor();
  own.key = new URL(page.url()).pathname.split("/").pop();
  assert.ok(!(await page.content()).includes(own.secret), "the secret is shown once");

  await page.goto(`${gateway.base}/console`);
  await page.getByText("Waiting for the first request").waitFor();
  assert.equal(await page.locator("[data-steps] li.done").count(), 1);
  await page.locator("[data-step-live]:not(.paused)").waitFor();
  own.record = await chat(own.secret, { model: MODEL, messages: HELLO });
  await page.getByText("The first request was answered.").waitFor();
  assert.equal(await page.locator("[data-steps] li.done").count(), 3);
  await checkPage(page, faults, "home, first request of a member");
  await context.close();
});

test("the usage log of a member has what he is charged, and nothing of providers", async () => {
  const answer = await fetch(`${gateway.base}/v1/messages`, {
    method: "POST",
    headers: { "x-api-key": own.secret, "anthropic-version": "2023-06-01", "content-type": "application/json" },
    body: JSON.stringify({ model: MODEL, max_tokens: 64, messages: HELLO }),
  });
  assert.equal(answer.status, 200, await answer.text());
  const booked = await asOperator((call) => until(() => call("GET", `usage/${own.record}`), ({ cost }) => cost !== null));
  assert.equal(booked.attempts[0].upstream_model, "vaulted-upstream");
  // Amounts may be rounded.
  hidden.push(booked.cost.slice(0, 7));
  await asMember(own.member, browser, gateway, VIEWS.light, async (page, faults) => {
    const records = page.locator("#rows [data-record]");
    await until(() => page.goto(`${gateway.base}/log?range=1h`).then(() => records.count()), (count) => count === 2);
    assert.equal(await page.getByRole("columnheader", { name: "Spent" }).count(), 1);
    assert.equal(await page.locator("[data-column=channel], #filter :is([name=channel], [name=account], [name=member])").count(), 0);
    const row = page.getByRole("row").filter({ has: page.locator(`[data-record="${own.record}"]`) });
    assert.match(await row.innerText(), new RegExp(`crew-model\\s+notebook\\s+Chat\\s[^]*\\$${booked.sale}\\s`));
    // The channel speaks another protocol than this caller.
    assert.match(await page.getByRole("row", { name: /crew-model notebook Messages/ }).innerText(), /notebook\s+Messages\s+11\s/);
    await checkNothingHidden(page, "log");
    await checkBothThemes(page, faults, "log of a member");

    await row.click();
    const drawer = page.locator(`.drawer[data-open="${own.record}"]`);
    await drawer.getByRole("heading", { name: "Price" }).waitFor();
    assert.deepEqual(await drawer.locator("h3").allTextContents(), ["Price"], "neither attempts nor a selection");
    assert.match(await drawer.locator(".figs").innerText(), new RegExp(`Spent\\s+\\$${booked.sale}\\s`));
    assert.ok(await drawer.getByRole("row", { name: /Output 7 \$4\.00 × 0\.5 \$0\.000014/ }).isVisible());
    assert.equal(await drawer.getByText("Cost", { exact: true }).count(), 0);
    await checkNothingHidden(page, "record");
    await checkBothThemes(page, faults, "record of a member");
    await screenshot(page, "member-record.light");
    await page.keyboard.press("Escape");
    await drawer.waitFor({ state: "detached" });

    await page.goto(`${gateway.base}/log/${own.record}`);
    await page.getByRole("link", { name: "Show body and answer" }).click();
    await page.locator(".messages > li", { hasText: "Say hello." }).first().waitFor();
    await checkNothingHidden(page, "contents");
    await page.goto(`${gateway.base}/log?range=1h`);
    const exports = await page.locator("#rows a[download]").evaluateAll((links) => links.map((link) => link.href));
    for (const address of ["/keys.csv", ...exports.filter((link) => !link.includes("parquet"))]) {
      const exported = await page.evaluate(async (address) => (await fetch(address)).text(), address);
      assert.match(exported, /notebook/, address);
      assert.deepEqual([...hidden, "edge key"].filter((text) => exported.includes(text)), [], address);
    }
    assert.equal(exports.length, 3);
  });
});

test("the playground answers under a key of the member, and models have the prices of the group", async () => {
  await asMember(own.member, browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/models/${MODEL}`);
    const price = page.getByRole("row", { name: /^crew / });
    assert.match(await price.innerText(), /Input\s+\$1\.00\s+\$2\.00\s+Output\s+\$2\.00\s+\$4\.00\s+× 0\.5/);
    await checkNothingHidden(page, "model");
    await page.getByRole("link", { name: "Try it" }).click();
    await page.waitForURL(`**/playground?model=${MODEL}`);
    await Promise.all([page.waitForResponse("**/v1/key"), page.getByRole("button", { name: "Make a key for 12 hours" }).click()]);
    await page.getByText("console-playground · crew").waitFor();
    await page.locator("#message").fill("Say hello to the crew.");
    const send = page.getByRole("button", { name: "Send", exact: true });
    const [asked] = await Promise.all([page.waitForRequest("**/v1/chat/completions"), send.click()]);
    assert.equal(asked.postDataJSON().stream, true);
    await page.locator(".answer [data-state].ok").waitFor();
    assert.match(await page.locator(".answer .said").last().textContent(), /Say hello to the crew/);
    await page.locator("[data-cost]", { hasText: "$" }).waitFor();
    await page.getByRole("button", { name: "Raw stream" }).click();
    await page.locator("[data-shown]", { hasText: "chat.completion.chunk" }).waitFor();
    assert.ok(!(await page.locator("[data-shown]").textContent()).includes("vaulted"));
    await page.getByRole("button", { name: "Headers", exact: true }).click();
    await page.locator("[data-shown]", { hasText: "x-request-id" }).waitFor();
    await checkNothingHidden(page, "playground");
    await checkBothThemes(page, faults, "playground of a member");
    await screenshot(page, "member-playground-answered.light");
    await page.goto(`${gateway.base}/models`);
    await page.locator("article", { hasText: MODEL }).getByText("$1.00").first().waitFor();
    await checkNothingHidden(page, "models");
    await page.goto(`${gateway.base}/keys`);
    assert.deepEqual((await page.locator("tbody td.t a").allTextContents()).sort(), ["console-playground", "notebook"]);
  });
});

test("pages and forms of operators, and what belongs to others, are answered 404", async () => {
  await asMember(own.member, browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/keys/${own.key}`);
    assert.ok(!(await page.locator("[data-hint]").getAttribute("data-hint")).includes("channel"), "the search finds no channels");
    const csrf = await page.locator("main input[name=csrf]").first().inputValue();
    const ask = (method, path) => page.evaluate(async ([method, path, csrf]) => {
      const body = method === "POST" ? new URLSearchParams({ csrf, typed_name: "edge key", confirmed: "true", overlap_s: "0" }) : undefined;
      return (await fetch(path, { method, body, headers: { accept: "text/html" }, redirect: "manual" })).status;
    }, [method, path, csrf]);
    const every = { ...rows, session: "ses_other", backup: "other" };
    const asked = ["GET", "POST"].flatMap((method) => pageRoutes(method).filter(({ path, seenBy }) => {
      if (["operator", "admin"].includes(seenBy)) return true;
      return /^\/(keys\/\{key\}|log\/\{record\})/.test(path);
    }).map((route) => [method, addressOf(route, every)]));
    assert.ok(asked.length > 100);
    const answered = [];
    for (const [method, path] of asked) if (await ask(method, path) !== 404) answered.push(`${method} ${path}`);
    assert.deepEqual(answered, []);
    assert.equal(await ask("GET", `/keys/${own.key}`), 200, "the own key is found");
    assert.equal(await ask("GET", `/log/${own.record}`), 200);
    for (const path of [`/keys/${rows.key}`, `/log/${rows.record}`, "/channels"]) {
      assert.equal((await page.goto(gateway.base + path)).status(), 404);
      await checkPage(page, faults, `${path} of a member`);
    }
    await screenshot(page, "member-not-found.light");
    // A list that names the key of another member shows none of its requests.
    await page.goto(`${gateway.base}/log?range=24h&key=${rows.key}`);
    assert.equal(await page.locator("#rows [data-record]").count(), 0);
    assert.ok(!(await page.content()).includes("edge key"));
    await page.goto(`${gateway.base}/log?range=24h&open=${rows.record}`);
    assert.equal(await page.locator(`#drawer :is(.figs, [href*="${rows.record}"])`).count(), 0);
  });
  const key = await asOperator((call) => call("GET", `keys/${rows.key}`));
  assert.equal(key.status, "active");
  assert.equal((await asOperator((call) => call("GET", `usage/${rows.record}`))).contents, true);
});

const pages = pageRoutes("GET").filter(({ path, seenBy }) => seenBy === "member" && !isNoPage(path));

// Opens each page of members as the member, and runs a check whose error is collected.
async function checkEach(page, faults, who, check) {
  const wrong = [];
  for (const route of pages) {
    const address = addressOf(route, { ...rows, ...own, model: MODEL });
    assert.equal((await page.goto(gateway.base + address)).status(), 200, address);
    assert.equal(new URL(page.url()).pathname + new URL(page.url()).search, address, "it redirects");
    await unfold(page);
    const name = `${address}, ${who}`;
    await check(name, route.path).catch((error) => wrong.push(`${error.message} ${JSON.stringify(error.actual)}`));
    await checkNothingHidden(page, name).catch((error) => wrong.push(`${error.message}: ${error.actual}`));
    faults.length = 0;
  }
  assert.deepEqual(wrong, []);
}

const picture = (path) => `member${path.replaceAll("/", "-").replace(/[{}]/g, "")}`;

test("every page of members is accessible to the member in both themes", async () => {
  own.passkey = await makePasskey(browser, gateway, own.member);
  await asMember(own.member, browser, gateway, VIEWS.light, (page, faults) => checkEach(page, faults, "light", async (name, path) => {
    await checkBothThemes(page, faults, name);
    await screenshot(page, `${picture(path)}.light`);
    await page.emulateMedia({ colorScheme: "dark" });
    await screenshot(page, `${picture(path)}.dark`);
    await page.emulateMedia({ colorScheme: "light" });
  }));
});

test("every page of members is in Chinese for a Chinese member", async () => {
  const options = { ...VIEWS.light, locale: "zh-CN" };
  await asMember(own.member, browser, gateway, options, (page, faults) => checkEach(page, faults, "Chinese", async (name) => {
    assert.equal(await page.locator("html").getAttribute("lang"), "zh-CN", name);
    assert.deepEqual(await englishOn(page), [], `English on ${name}`);
    await checkWithoutColours(page, faults, name);
  }));
});

test("every page of members fits on a phone", async () => {
  await asMember(own.member, browser, gateway, VIEWS.phone, (page, faults) => checkEach(page, faults, "phone", async (name, path) => {
    await checkLayout(page, faults, name);
    await screenshot(page, `${picture(path)}.phone`);
  }));
});

const statusWith = async (key) => (await fetch(`${gateway.base}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).status;

test("the member replaces a key, and revokes it", async () => {
  await asMember(own.member, browser, gateway, VIEWS.phone, async (page, faults) => {
    assert.equal(await statusWith(own.secret), 200);
    await page.goto(`${gateway.base}/keys/${own.key}`);
    await page.locator("#overlap_s").selectOption("0");
    await page.getByRole("button", { name: "Replace the key" }).click();
    await page.getByText("The key is ready").waitFor();
    const second = await page.locator("code.input").first().textContent();
    assert.equal(await statusWith(own.secret), 401, "the former key ends at once");
    assert.equal(await statusWith(second), 200);
    await page.goto(`${gateway.base}/keys/${own.key}`);
    assert.ok(!(await page.content()).includes(second), "the secret is shown once");
    await page.locator("summary", { hasText: "Revoke" }).click();
    await page.locator("#typed_name").fill("notebook");
    await checkPage(page, faults, "key of a member, about to be revoked");
    await page.getByRole("button", { name: "Revoke for good" }).click();
    await page.getByText("The key is revoked.").waitFor();
    assert.equal(await statusWith(second), 401);
    await page.goto(`${gateway.base}/keys`);
    assert.deepEqual(await page.locator("tbody td.t a").allTextContents(), ["console-playground"]);
  });
});
