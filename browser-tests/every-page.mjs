// Every page of the console: an address for each route of the table of pages, and the rows that the addresses name.
import { readFileSync } from "node:fs";
import { authenticator } from "./authenticator.mjs";
import { VIEWS } from "./browser.mjs";
import { PASSWORD, asMember, callApi } from "./owner.mjs";

// The lines of the table of pages with a method: {path, seenBy}. A test of the console compares the list with the table.
export function pageRoutes(method) {
  const lines = readFileSync(process.env.PAGE_ROUTES, "utf8").trim().split("\n").map((line) => line.split(" "));
  return lines.filter(([of]) => of === method).map(([, path, seenBy]) => ({ path, seenBy }));
}

// It redirects, or is a file.
export const isNoPage = (path) => path === "/" || path.endsWith(".csv");

// Unfolds everything that is folded, such as the tables of charts, except menus, which cover the elements below them. Of the hundreds
// of similar parts of the API references only some are kept, because axe takes seconds for all.
export const unfold = (page) => page.evaluate(() => {
  for (const folded of document.querySelectorAll("main details:not(.menu-down)")) folded.open = true;
  for (const part of [...document.querySelectorAll("main article")].slice(30)) part.remove();
});

// Names of products, of formats and of rows.
const NAMES = ["Cherry Studio", "JSON Schema", "Open WebUI", "edge passkey"];

// Texts and names of elements with two English words side by side, except code, messages of callers, and what is marked as English.
export const englishOn = (page) => page.evaluate((names) => {
  const found = new Set();
  const add = (element, text) => {
    const left = [...names, navigator.userAgent].reduce((left, name) => left.replaceAll(name, ""), text);
    const isMarked = element.closest("[lang]").lang !== "zh-CN" || element.closest("code, pre, kbd, .message, template, noscript, script");
    if (/[a-z]{2,} [a-z]{2,}/i.test(left) && !isMarked && element.checkVisibility()) found.add(text.trim());
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) add(texts.currentNode.parentElement, texts.currentNode.data);
  for (const name of ["title", "aria-label", "placeholder", "alt"]) {
    for (const element of document.querySelectorAll(`body [${name}]`)) add(element, element.getAttribute(name));
  }
  return [...found];
}, NAMES);

// Repeats a request until the answer fits, for up to ten seconds.
export async function until(ask, fits) {
  for (let tries = 0; tries < 100; tries += 1) {
    const answer = await ask().catch(() => undefined);
    if (answer !== undefined && fits(answer)) return answer;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error("it did not happen");
}

// Makes a row of each kind through the admin API, with a page of the admin.
export async function makeRows(page, gateway) {
  const call = (method, path, body) => callApi(page, method, `/admin/v1/${path}`, body);
  const [model, channel, group] = ["edge/model", "edge", "edge group"];
  for (const [name, value] of [["contents.store", "true"], ["access.registration", "open"]]) await call("PUT", `settings/${name}`, { value });
  const made = await call("POST", "channels", {
    name: channel, provider: "compatible", protocol: "openai", base_url: `http://${gateway.provider}/v1`, private_network: true,
    serves: [{ model, upstream: "chat-model", cost: { input: "1", output: "2" } }],
  });
  await call("POST", `channels/${channel}/accounts`, { name: "main", credential: "a credential" });
  await call("PATCH", `channels/${channel}`, { weight: 2 });
  await call("PUT", `prices/${encodeURIComponent(model)}`, { price: { input: "2", output: "4" } });
  await call("POST", "groups", { name: group, channels: [channel] });
  const member = await call("POST", "members", { name: "edge member" });
  const key = await call("POST", "keys", { name: "edge key", groups: [group], log_contents: true });
  const adminKey = await call("POST", "admin-keys", { name: "edge admin key", scope: "operator", password: PASSWORD });
  await call("POST", "alert-destinations", { name: "edge hook", kind: "webhook", url: "http://127.0.0.1:9/x", private_network: true });
  const [invite, link, job] = await Promise.all([
    call("POST", "invites", { note: "edge invite" }),
    call("POST", `members/${member.id}/password-link`, { password: PASSWORD }),
    call("POST", "jobs", { kind: "doctor" }),
  ]);
  const ask = () => fetch(`${gateway.base}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key.key}`, "content-type": "application/json" },
    body: JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }] }),
  });
  const record = (await until(ask, (answer) => answer.status === 200)).headers.get("x-request-id");
  await until(() => call("GET", `usage/${record}/contents`), () => true);
  await until(() => call("GET", `jobs/${job.id}`), ({ state }) => ["done", "failed"].includes(state));
  const versions = await call("GET", `channels/${channel}/history`);
  return {
    model, channel, group, destination: "edge hook", setting: "log.slow_ms", account: "main", revision: versions.items[0].revision, channelId: made.id,
    key: key.id, member: member.id, adminKey: adminKey.id, record, job: job.id, invite: invite.token, inviteId: invite.id, link: link.token,
  };
}

// Adds a passkey on the profile of a member and returns its id. Browsers offer passkeys only at host names.
export async function makePasskey(browser, gateway, name) {
  const local = { base: gateway.base.replace("127.0.0.1", "localhost") };
  let id;
  await asMember(name, browser, local, VIEWS.light, async (page) => {
    await authenticator(page);
    await page.goto(`${local.base}/profile`);
    await page.getByLabel("Name", { exact: true }).fill("edge passkey");
    await page.locator("#password_for_passkey").fill(PASSWORD);
    await page.getByRole("button", { name: "Add a passkey" }).click();
    await page.getByRole("button", { name: "Make the passkey" }).click();
    await page.getByText("The passkey was added.").waitFor();
    id = (await page.locator("a[href*='/profile/passkeys/']").getAttribute("href")).split("/").pop();
  });
  return id;
}

// Pages that show nothing without a query, or more with one.
const queries = (rows) => ({
  "/channel-selection/edit": { channel: rows.channelId },
  "/channel-selection/remove": { channel: rows.channelId },
  "/channels/{name}": { model: rows.model, caller: `key:${rows.key}` },
  "/invite": { token: rows.invite },
  "/key-selection/move": { key: rows.key },
  "/key-selection/off": { key: rows.key },
  "/key-selection/revoke": { key: rows.key },
  "/keys": { open: "new" },
  "/log": { range: "24h", open: rows.record },
  "/overview": { range: "24h" },
  "/playground": { model: rows.model },
  "/pricing/history": { model: rows.model },
  "/pricing/model": { model: rows.model },
  "/pricing/model/facts": { model: rows.model },
  "/pricing/simulate": { model: rows.model, group: rows.group, input: "1000", output: "10" },
  "/reset-password": { token: rows.link },
  "/search": { q: "edge" },
  // Its link was used.
  "/setup": { token: "tgl-used" },
});

// An address of a route, with the rows of `makeRows`.
export function addressOf({ path }, rows) {
  const first = path.split("/")[1];
  const names = {
    channels: rows.channel, setup: rows.channel, groups: rows.group, members: rows.member, alerts: rows.destination, settings: rows.setting,
    system: rows.backup,
  };
  const values = {
    ...rows, name: names[first], "*name": rows.model, admin_key: rows.adminKey, invite: rows.inviteId,
  };
  const filled = path.replace(/\{(.+?)\}/g, (_, name) => {
    if (values[name] === undefined) throw new Error(`${path}: what is ${name}?`);
    return encodeURIComponent(values[name]);
  });
  const query = new URLSearchParams(queries(rows)[path] ?? {}).toString();
  return query ? `${filled}?${query}` : filled;
}
