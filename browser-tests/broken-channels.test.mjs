// Broken channels: a caller's request meets the fault, and an operator finds it in the usage log and repairs the channel by what the pages
// say.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, screenshot } from "./browser.mjs";
import { until } from "./every-page.mjs";
import { asOwner, callApi } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";

useGateway();

const save = async (page) => {
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByText("Saved", { exact: true }).waitFor();
};

const setBaseUrl = async (page) => {
  await page.getByRole("link", { name: "Edit" }).click();
  await page.getByLabel("Base URL").fill(`http://${gateway.provider}/v1`);
  await save(page);
};

// What is wrong with a channel; what its caller receives, and what the record has: the error, the attempt, and what to do.
// Words of the gateway itself are in the language of the page, `chinese`.
const FAULTS = {
  "wrong credential": {
    credential: "status-401-always",
    received: { status: 502, code: "upstream_account_error", says: /provider refused the gateway's account/ },
    record: { error: "E53", attempt: ["401 refused", "the credential asks for this status"], advice: "Test the channel and replace its credential." },
    async repair(page) {
      await page.getByRole("link", { name: "main", exact: true }).click();
      await page.locator("#credential").fill("a credential");
      await save(page);
    },
  },
  "wrong base URL": {
    baseUrl: () => `http://${gateway.provider}/nowhere`,
    received: { status: 502, code: "upstream_error", says: /provider failed with status 404/ },
    record: { error: "E55", attempt: ["404 refused", "Invalid URL"], advice: "Check the channel's base URL" },
    repair: setBaseUrl,
  },
  "unknown model": {
    upstream: "missing-model",
    received: { status: 404, code: "model_not_found", says: /`missing-model` does not exist/ },
    record: { error: "E52", attempt: ["404 refused", "`missing-model` does not exist"], advice: "the model's name at the provider" },
    async repair(page) {
      await page.getByRole("link", { name: "Choose models" }).first().click();
      await page.getByLabel(/^Name at the provider, /).fill("chat-model");
      await save(page);
    },
  },
  "connection refused": {
    baseUrl: () => "http://127.0.0.1:9/v1",
    received: { status: 502, code: "upstream_unreachable", says: /provider could not be reached/ },
    record: { error: "E50", attempt: ["not sent", "connection refused or unreachable"], advice: "Check the base URL and the network" },
    chinese: "连接被拒绝或无法到达",
    repair: setBaseUrl,
  },
};

// Makes a channel, a group that offers it alone, and a key of that group; returns the key.
async function makeChannel(page, name, { baseUrl, credential = "a credential", upstream = "chat-model" }) {
  const call = (method, path, body) => callApi(page, method, `/admin/v1/${path}`, body);
  await call("POST", "channels", {
    name, provider: "compatible", protocol: "openai", base_url: baseUrl?.() ?? `http://${gateway.provider}/v1`, private_network: true,
    serves: [{ model: `${name}-model`, upstream, cost: { input: "1", output: "2" } }],
  });
  await call("POST", `channels/${encodeURIComponent(name)}/accounts`, { name: "main", credential });
  await call("POST", "groups", { name, channels: [name] });
  return (await call("POST", "keys", { name: `caller of ${name}`, groups: [name] })).key;
}

async function send(key, model) {
  const answer = await fetch(`${gateway.base}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model, messages: [{ role: "user", content: "Say hello." }] }),
  });
  const { error, choices } = await answer.json();
  return { status: answer.status, id: answer.headers.get("x-request-id"), error, said: choices?.[0].message.content };
}

for (const [fault, { received, record, chinese, repair, ...channel }] of Object.entries(FAULTS)) {
  test(`${fault}: a failed request of a caller leads to the channel, whose repair lets the next one pass`, async () => {
    await asOwner(browser, gateway, VIEWS.light, async (page, faults, context) => {
      const name = fault.replaceAll(" ", "-");
      const model = `${name}-model`;
      const key = await makeChannel(page, name, channel);
      const failed = await until(() => send(key, model), ({ error }) => received.says.test(error?.message ?? ""));
      assert.equal(failed.status, received.status);
      assert.equal(failed.error.code, received.code);

      const row = page.locator(`#rows [data-record="${failed.id}"]`);
      await until(() => page.goto(`${gateway.base}/log?range=15m&outcome=not_completed`).then(() => row.count()), (count) => count > 0);
      await row.click();
      const drawer = page.locator(`.drawer[data-open="${failed.id}"]`);
      await page.waitForURL(`**open=${failed.id}**`);
      await drawer.locator("q").filter({ hasText: received.says }).waitFor();
      await drawer.getByText(record.advice).first().waitFor();
      assert.match(await drawer.getByRole("link", { name: "What to do" }).getAttribute("href"), new RegExp(`/docs#${record.error}$`));
      const attempt = await drawer.locator(".lanes li").first().textContent();
      for (const text of record.attempt) assert.ok(attempt.includes(text), `${text}: ${attempt}`);
      await checkPage(page, faults, `record, ${fault}`);
      await screenshot(page, `broken-${name}.light`);

      if (chinese) {
        const [log, setLanguage] = [page.url(), (value) => context.addCookies([{ name: "tollgate_language", value, url: gateway.base }])];
        await setLanguage("zh-CN");
        await page.goto(`${gateway.base}/log/${failed.id}`);
        await page.getByText(chinese).first().waitFor();
        await setLanguage("en");
        await page.goto(log);
      }

      await drawer.locator(".lanes").getByRole("link", { name, exact: true }).first().click();
      await page.waitForURL(`**/channels/${name}`);
      await checkPage(page, faults, `channel, ${fault}`);
      await repair(page);
      await page.goto(`${gateway.base}/channels/${name}`);
      await page.getByRole("button", { name: "Run test" }).click();
      await page.locator(".stages").getByText("Passed").waitFor();
      const passed = await send(key, model);
      assert.equal(passed.status, 200, JSON.stringify(passed.error));
      assert.match(passed.said, /Say hello/);
    });
  });
}
