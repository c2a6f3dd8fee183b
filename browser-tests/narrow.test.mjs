// Pages on a phone, with names of maximum length, and each page of the table: none is wider than the screen, and touch targets are large
// enough.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkLayout, checkPage, openPage, screenshot } from "./browser.mjs";
import { addressOf, isNoPage, makePasskey, makeRows, pageRoutes, unfold, until } from "./every-page.mjs";
import { PASSWORD, asMember, asOwner, callApi as call } from "./owner.mjs";
import { browser, chat, gateway, useGateway } from "./suite.mjs";

const MODEL = `acme/${"long-context-".repeat(9)}model`;
const KEY = `key-${"of-a-team-with-a-long-name-".repeat(3)}x`;
const GROUP = `group-${"for-everyone-in-the-office-".repeat(2)}x`;
const CHANNEL = `channel-${"in-a-region-far-away-".repeat(3)}x`;

useGateway();

// Controls that a finger 44 px wide cannot hit at their upper or lower edge.
const tooSmall = (page) => page.evaluate(() => {
  const controls = document.querySelectorAll(".btn, .seg :is(a, button), nav.tabs a, .copy, .crumb a, .card > header > a, [data-reset]");
  const isHit = (control, dy) => {
    const { x, y, width, height } = control.getBoundingClientRect();
    const at = document.elementFromPoint(x + width / 2, y + height / 2 + dy);
    // Another control may be nearer if two are close together.
    return !at || control.contains(at) || at.closest("a, button, input, select, label, summary");
  };
  const small = [...controls].filter((control) => {
    if (!control.checkVisibility() || control.closest(".dock, details:not([open]) > :not(summary)")) return false;
    // What is opened beside a list covers the list.
    if (document.querySelector(".drawer") && !control.closest(".drawer")) return false;
    control.scrollIntoView({ block: "center" });
    return !isHit(control, -21) || !isHit(control, 21);
  });
  return small.map((control) => control.outerHTML.slice(0, 120));
});

test("long names fit on a phone", async () => {
  await asOwner(browser, gateway, VIEWS.phone, async (page, faults) => {
    await page.goto(`${gateway.base}/profile`);
    await call(page, "POST", "/admin/v1/channels", {
      name: CHANNEL,
      provider: "compatible",
      protocol: "openai",
      base_url: `http://${gateway.provider}/v1`,
      private_network: true,
      serves: [{ model: MODEL, upstream: "chat-model", cost: { input: "1", output: "2" } }],
    });
    await call(page, "POST", `/admin/v1/channels/${CHANNEL}/accounts`, { name: "one", credential: "a credential" });
    await call(page, "PUT", `/admin/v1/prices/${encodeURIComponent(MODEL)}`, { price: { input: "2", output: "4" } });
    await call(page, "POST", "/admin/v1/groups", { name: GROUP, channels: [CHANNEL] });
    const key = await call(page, "POST", "/admin/v1/keys", { name: KEY, groups: [GROUP] });
    const ask = async (extra) => {
      const answer = await fetch(`${gateway.base}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${key.key}`, "content-type": "application/json" },
        body: JSON.stringify({ model: MODEL, messages: [{ role: "user", content: "Hello" }], ...extra }),
      });
      await answer.text();
      return [answer.status, answer.headers.get("x-request-id")];
    };
    let answered;
    for (let round = 0; round < 50; round += 1) {
      answered = await ask({});
      if (answered[0] === 200) break;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    assert.equal(answered[0], 200);
    const refused = await ask({ model: `${MODEL}-that-is-not-there` });
    assert.notEqual(refused[0], 200);
    await call(page, "PATCH", `/admin/v1/channels/${CHANNEL}`, { status: "off" });
    let without;
    for (let round = 0; round < 50; round += 1) {
      without = await ask({});
      if (without[0] === 503) break;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    assert.equal(without[0], 503);
    const paths = [
      "/overview",
      "/overview?split=key",
      "/overview?split=channel",
      "/log",
      `/log/${answered[1]}`,
      `/log/${without[1]}`,
      "/keys",
      `/keys/${key.id}`,
      "/channels",
      `/channels/${CHANNEL}`,
      `/channels/${CHANNEL}?model=${encodeURIComponent(MODEL)}&caller=${encodeURIComponent(`key:${key.id}`)}`,
      "/groups",
      `/groups/${GROUP}`,
      "/pricing",
      `/pricing/model?model=${encodeURIComponent(MODEL)}`,
      `/pricing/simulate?model=${encodeURIComponent(MODEL)}&input=1000`,
      "/models",
      `/models/${encodeURIComponent(MODEL)}`,
      "/status",
      "/playground",
    ];
    const wrong = [];
    for (const path of paths) {
      await page.goto(`${gateway.base}${path}`);
      await checkPage(page, faults, `long names on ${path}`).catch((error) => wrong.push(error.message));
      wrong.push(...(await tooSmall(page)).map((control) => `${path}: ${control}`));
    }
    assert.deepEqual(wrong, []);
    await page.goto(`${gateway.base}/log/${without[1]}`);
    await screenshot(page, "long-names-record.phone");
    await page.goto(`${gateway.base}/keys`);
    await screenshot(page, "long-names-keys.phone");
  });
});

test("lists whose rows are cards are sorted by a field of their filter", async () => {
  for (const javaScriptEnabled of [true, false]) {
    await asOwner(browser, gateway, { ...VIEWS.phone, javaScriptEnabled }, async (page, faults) => {
      for (const [path, sort] of [["/keys", "last_used"], ["/members", "spent"]]) {
        await page.goto(`${gateway.base}${path}`);
        const field = page.getByLabel("Sort by");
        assert.equal(await field.inputValue(), "");
        await field.selectOption(sort);
        if (!javaScriptEnabled) await page.getByRole("button", { name: "Filter" }).click();
        await page.waitForURL(`**sort=${sort}**`);
        assert.equal(await field.inputValue(), sort);
        assert.ok(await page.locator("tbody tr").count() > 0, path);
        if (!javaScriptEnabled) continue;
        await checkPage(page, faults, `sorted ${path}`);
        await screenshot(page, `sorted${path.replace("/", "-")}.phone`);
      }
    });
  }
  // In a table the heads sort; the order is kept when the list is filtered.
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/members?sort=spent`);
    assert.equal(await page.getByLabel("Sort by").isVisible(), false);
    await page.locator("#search").fill("owner");
    await page.keyboard.press("Enter");
    await page.waitForURL("**search=owner**");
    assert.match(page.url(), /sort=spent/);
  });
});

test("on a phone the period of the usage log is one button, and the playground asks for a key before the message", async () => {
  await asOwner(browser, gateway, VIEWS.phone, async (page, faults) => {
    await page.goto(`${gateway.base}/log?range=24h`);
    const period = page.locator("#rows details.menu-down");
    const [chosen, choices] = [period.locator("summary"), period.locator(".pop a")];
    const label = (await chosen.textContent()).trim();
    await chosen.click();
    await checkPage(page, faults, "log, period");
    await screenshot(page, "log-period.phone");
    const other = choices.filter({ hasNotText: label }).first();
    const name = (await other.textContent()).trim();
    await other.click();
    await page.waitForURL((url) => url.searchParams.get("range") !== "24h");
    assert.equal((await chosen.textContent()).trim(), name);
    await page.goto(`${gateway.base}/playground`);
    const top = async (place) => (await page.locator(place).boundingBox()).y;
    assert.ok(await top("#secret") < await top("#message"), "without a key it is asked for first");
    await checkPage(page, faults, "playground without a key");
  });
});

// A member with a password, a key, a record with its contents, and a passkey.
async function makeReader(page, rows) {
  const make = (path, body) => call(page, "POST", `/admin/v1/${path}`, body);
  const member = "narrow member";
  const { id } = await make("members", { name: member });
  const { token } = await make(`members/${id}/password-link`, { password: PASSWORD });
  const used = await fetch(`${gateway.base}/admin/v1/password-links/use`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ token, new_password: PASSWORD }),
  });
  assert.equal(used.status, 200, await used.text());
  await call(page, "PATCH", `/admin/v1/groups/${encodeURIComponent(rows.group)}`, { self_service: true });
  const key = await make("keys", { name: "narrow key", member, groups: [rows.group], log_contents: true });
  const ask = () => chat(key.key, { model: rows.model, messages: [{ role: "user", content: "Hello" }] });
  const record = await until(ask, () => true);
  await until(() => call(page, "GET", `/admin/v1/usage/${record}/contents`), () => true);
  return { member, key: key.id, record, passkey: await makePasskey(browser, gateway, member) };
}

test("every page fits on a phone, with everything unfolded and touch targets that are large enough", async () => {
  let rows;
  let reader;
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/profile`);
    rows = await makeRows(page, gateway);
    reader = await makeReader(page, rows);
  });
  const wrong = [];
  const visitAll = async (page, faults, seenBy, own = {}) => {
    for (const route of pageRoutes("GET").filter((route) => !isNoPage(route.path) && seenBy.includes(route.seenBy))) {
      const address = addressOf(route, { ...rows, ...own });
      const answer = await page.goto(gateway.base + address);
      assert.equal(answer.status(), route.path === "/setup" ? 400 : 200, address);
      assert.equal(new URL(page.url()).pathname, address.split("?")[0], "it redirects");
      const checkTargets = async () => wrong.push(...(await tooSmall(page)).map((control) => `${address}: ${control}`));
      await checkTargets();
      if (await page.locator(".drawer").count()) {
        await page.locator(".drawer [data-close]").first().click();
        await page.locator(".drawer").waitFor({ state: "detached" });
        await checkTargets();
      }
      await unfold(page);
      await checkLayout(page, faults, address).catch((error) => wrong.push(`${error.message} ${faults}`));
      faults.length = 0;
    }
  };
  await asOwner(browser, gateway, VIEWS.phone, (page, faults) => visitAll(page, faults, ["operator", "admin"]));
  await asMember(reader.member, browser, gateway, VIEWS.phone, (page, faults) => visitAll(page, faults, ["member"], reader));
  const { context, page, faults } = await openPage(browser, { ...VIEWS.phone, locale: "en" });
  await visitAll(page, faults, ["anyone"]);
  await context.close();
  assert.deepEqual(wrong, []);
});
