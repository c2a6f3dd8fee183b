// Hostile texts in every field that takes texts: no page renders them as markup, and pages show them as they were
// stored.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { VIEWS } from "./browser.mjs";
import { addressOf, pageRoutes, until } from "./every-page.mjs";
import { HostileTexts, textFields } from "./hostile.mjs";
import { PASSWORD, asOwner, callApi } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";

const hostile = new HostileTexts();
const list = (text) => text.trim().split(/\s+/);

// The fields of the admin API's requests that take texts. Those of the first two kinds are stored by this test.
const FIELDS = {
  shown: list(`
    Account.name AdminKey.name AlertDestination.name Channel.name Channel.tags Group.description Group.models Group.name
    Invite.note Key.models Key.models_deny Key.name Key.tags Member.name Model.description Model.display_name Model.name Model.vendor
    Posting.note SavedView.name SavedView.query ServedModel.model ServedModel.upstream SettingValue.value`),
  hidden: list("Account.credential AlertDestination.secret Channel.headers"),
  // They name rows whose names are hostile.
  references: list(`
    AdminKey.member ChannelProxy.channel ChannelRemoval.channels ChannelTest.account ChannelTest.model ChannelTest.upstream_model Channels.channels
    Channel.add_to_groups Channel.remove_from_groups EndedCooling.account Group.channels GroupOffer.channels GroupOffer.models Invite.groups
    Job.group Job.key Job.member Job.model Job.name Job.models Job.overwrite Key.groups Key.member Member.default_group Member.groups PlaygroundKey.group Posting.member
    PriceImport.apply PriceImport.models PriceImport.overwrite PriceSimulation.group PriceSimulation.key PriceSimulation.model`),
  // Their form is checked: addresses, files, words, names of parameters, codes.
  formats: list(`
    AlertDestination.from AlertDestination.to AlertDestination.url CatalogFile.file Channel.base_url Channel.ca_file
    Channel.client_certificate Channel.client_key Channel.proxy ChannelFile.file ChannelProxy.proxy Channels.base_url Channels.ca_file
    Channels.client_certificate Channels.client_key Channels.proxy Job.file Job.from Job.outcome Job.to Login.email
    Model.supported_parameters Model.unsupported_parameters ParameterEdit.parameter ParameterEdit.to Preferences.time_zone PriceImport.file
    PriceSimulation.max_price Profile.max_tokens_field Profile.system_role Profile.thinking.adaptive Profile.thinking.effort
    Profile.thinking.level Profile.thought_field`),
  // The same as in other rows.
  same: list(`
    Channel.test_model Channels.headers Channels.tags Channels.test_model InviteAcceptance.email InviteAcceptance.name Job.source
    LinkUse.name NewPasskey.name Passkey.name PriceImport.source Registration.email Registration.name`),
  // Passwords and other proofs, which are compared and not stored.
  proofs: list(`
    AdminKey.password ChannelFile.version Credentials.login Credentials.password InviteAcceptance.new_password InviteAcceptance.token
    InviteToken.token LinkToken.token LinkUse.new_password LinkUse.token NewPasskey.attestation_object NewPasskey.client_data
    NewPasskey.state NewPassword.new_password NewPassword.password PasskeyAnswer.authenticator_data PasskeyAnswer.client_data
    PasskeyAnswer.credential PasskeyAnswer.signature PasskeyAnswer.user_handle PasskeyProof.password PasswordLinkProof.password
    Password.new_password Password.password PasswordProof.password PresentedKey.key Registration.new_password SignInCode.challenge
    SignInCode.code SignInCode.recovery_code TotpConfirmation.challenge TotpConfirmation.code TotpConfirmation.password`),
};

// Texts from upstreams and callers.
const upstreamSays = {
  model: hostile.of("upstream: model of its list", { max: 250 }),
  error: hostile.of("upstream: error", { max: 400 }),
  answer: hostile.of("upstream: answer", { max: 2000 }),
};
const callerSends = {
  model: hostile.of("caller: unknown model", { max: 120 }),
  tag: hostile.of("caller: tag", { max: 100 }),
  client: hostile.of("caller: user agent", { max: 64 }),
  id: hostile.of("caller: request id", { max: 120, spaces: false }),
  message: hostile.of("caller: message", { max: 2000 }),
};

const upstream = createServer((request, response) => {
  let text = "";
  request.on("data", (part) => { text += part; });
  request.on("end", () => {
    const answer = (status, body) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    if (request.url.endsWith("/models")) return answer(200, { object: "list", data: [{ id: upstreamSays.model, object: "model" }] });
    const { model, stream } = JSON.parse(text);
    if (model === "fails") return answer(400, { error: { message: upstreamSays.error, type: "invalid_request_error" } });
    const said = { role: "assistant", content: upstreamSays.answer };
    const choice = { index: 0, finish_reason: "stop", ...(stream ? { delta: said } : { message: said }) };
    const usage = { prompt_tokens: 10, completion_tokens: 10, total_tokens: 20 };
    const body = { id: "c1", object: stream ? "chat.completion.chunk" : "chat.completion", created: 1, model, choices: [choice], usage };
    if (!stream) return answer(200, body);
    return response.writeHead(200, { "content-type": "text/event-stream" }).end(`data: ${JSON.stringify(body)}\n\ndata: [DONE]\n\n`);
  });
});

let rows;
let document;
let records;

useGateway({ prepare });

async function prepare() {
  await new Promise((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/profile`);
    document = await callApi(page, "GET", "/admin/openapi.json");
    await store(page);
    await ask(page);
  });
}

after(() => {
  upstream.closeAllConnections();
  upstream.close();
});

async function storeChannel(call) {
  const cost = { input: "1", output: "2" };
  const model = hostile.of("ServedModel.model", { max: 250 });
  const names = { channel: hostile.of("Channel.name"), account: hostile.of("Account.name") };
  const channel = await call("POST", "channels", {
    name: names.channel, provider: "compatible", protocol: "openai", private_network: true,
    base_url: `http://127.0.0.1:${upstream.address().port}/v1`, tags: [hostile.of("Channel.tags", { max: 40 })],
    headers: { "x-hostile": hostile.of("Channel.headers", { max: 1000, plain: true }) },
    serves: [
      { model, upstream: hostile.of("ServedModel.upstream", { max: 175 }), cost },
      { model: hostile.of("Model.name", { max: 250 }), upstream: "answers", cost },
      { model: "fails", upstream: "fails", cost },
    ],
  });
  await call("POST", `channels/${channel.id}/accounts`, { name: names.account, credential: hostile.of("Account.credential", { max: 250 }) });
  await call("PATCH", `channels/${channel.id}`, { weight: 2 });
  await call("PUT", `prices/${encodeURIComponent(model)}`, { price: { input: "2", output: "4" } });
  await call("PATCH", `models/${encodeURIComponent(model)}`, {
    description: hostile.of("Model.description", { max: 500 }), display_name: hostile.of("Model.display_name", { max: 250 }),
    vendor: hostile.of("Model.vendor"),
  });
  return { model, ...names, id: channel.id };
}

async function storePeople(call, channel) {
  const group = await call("POST", "groups", {
    name: hostile.of("Group.name"), channels: [channel.channel], description: hostile.of("Group.description", { max: 200 }),
    models: ["*", hostile.of("Group.models", { max: 250 })],
  });
  const member = await call("POST", "members", { name: hostile.of("Member.name"), groups: [group.name] });
  const key = await call("POST", "keys", {
    name: hostile.of("Key.name"), groups: [group.name], member: "owner", log_contents: true, tags: { team: hostile.of("Key.tags", { max: 100 }) },
    models: ["*", hostile.of("Key.models", { max: 250 })], models_deny: [hostile.of("Key.models_deny", { max: 250 })],
  });
  await call("POST", "keys", { name: hostile.of("Key.name"), member: member.name });
  const adminKey = await call("POST", "admin-keys", { name: hostile.of("AdminKey.name"), scope: "member", member: member.name, password: PASSWORD });
  await call("POST", "ledger/top-ups", { member: member.id, amount: "1", note: hostile.of("Posting.note", { max: 1000 }) }, { "idempotency-key": "1" });
  const invite = await call("POST", "invites", { note: hostile.of("Invite.note", { max: 200 }), groups: [group.name] });
  const link = await call("POST", `members/${member.id}/password-link`, { password: PASSWORD });
  const destination = await call("POST", "alert-destinations", {
    name: hostile.of("AlertDestination.name"), kind: "webhook", url: "http://127.0.0.1:9/x", private_network: true,
    secret: hostile.of("AlertDestination.secret", { max: 500 }),
  });
  const view = `model=${encodeURIComponent(hostile.of("SavedView.query", { max: 200 }))}`;
  await call("PUT", "me/views", { name: hostile.of("SavedView.name", { max: 60 }), query: view });
  return {
    group: group.id, groupName: group.name, member: member.id, key: key.id, secret: key.key, adminKey: adminKey.id, invite: invite.token, inviteId: invite.id,
    link: link.token, destination: destination.id, view,
  };
}

// Settings that take any line.
async function storeSettings(call) {
  await call("PUT", "settings/contents.store", { value: "true" });
  await call("PUT", "settings/access.registration", { value: "open" });
  await call("PUT", "settings/console.announcement", { value: hostile.of("SettingValue.value", { max: 400, plain: true }) });
  await call("PUT", "settings/console.display_name", { value: hostile.of("SettingValue.value", { max: 60 }) });
}

async function store(page) {
  const call = (method, path, body, headers) => callApi(page, method, `/admin/v1/${path}`, body, headers);
  await storeSettings(call);
  const channel = await storeChannel(call);
  const people = await storePeople(call, channel);
  const job = await call("POST", "jobs", { kind: "doctor" });
  const versions = await call("GET", `channels/${channel.id}/history`);
  rows = { ...people, model: channel.model, channel: channel.id, channelId: channel.id, account: channel.account, setting: "console.announcement", revision: versions.items[0].revision, job: job.id };
}

// Requests that are answered, refused, and failed by the upstream.
async function ask(page) {
  const send = async (model) => {
    const answer = await fetch(`${gateway.base}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${rows.secret}`, "content-type": "application/json", "user-agent": callerSends.client,
        "x-request-id": callerSends.id, "x-tollgate-tags": `said=${callerSends.tag}`,
      },
      body: JSON.stringify({ model, messages: [{ role: "user", content: callerSends.message }] }),
    });
    await answer.text();
    return [answer.status, answer.headers.get("x-request-id")];
  };
  const [, answered] = await until(() => send(rows.model), ([status]) => status === 200);
  const [, failed] = await send("fails");
  const [, refused] = await send(callerSends.model);
  await until(() => callApi(page, "GET", `/admin/v1/usage/${answered}/contents`), () => true);
  await until(() => callApi(page, "GET", `/admin/v1/usage/${refused}`), () => true);
  records = [answered, failed, refused];
  rows.record = answered;
}

test("every text field of the admin API is in the table", () => {
  const [known, fields] = [Object.values(FIELDS).flat(), textFields(document)];
  assert.deepEqual(fields.filter((field) => !known.includes(field)), [], "fields that the table lacks");
  assert.deepEqual(known.filter((field) => !fields.includes(field)), [], "fields that the admin API lacks");
  const unused = [...FIELDS.shown, ...FIELDS.hidden].filter((field) => !hostile.fields.has(field));
  assert.deepEqual(unused, [], "fields that are not stored");
});

// The markup that a page rendered from the texts, and the page's visible texts: of elements, of fields, and of shown
// attributes.
const look = (page) => page.evaluate(() => {
  const inside = (root) => [...root.querySelectorAll("*"), ...[...root.querySelectorAll("template")].flatMap(({ content }) => [...content.querySelectorAll("*")])];
  const elements = inside(document);
  const attributes = elements.flatMap((element) => [...element.attributes]);
  const isAddress = ({ name }) => ["href", "src", "action", "formaction", "xlink:href"].includes(name);
  return {
    wrong: [
      ...elements.filter((element) => element.hasAttribute("data-hostile")).map((element) => element.outerHTML.slice(0, 200)),
      ...attributes.filter((attribute) => attribute.name.startsWith("on") || (isAddress(attribute) && /^\s*javascript:/i.test(attribute.value))).map(({ name, value }) => `${name}="${value}"`),
      ...(window.wasHostile ? ["a script ran"] : []),
    ],
    text: [document.documentElement.textContent, ...attributes.map(({ value }) => value), ...elements.map((element) => (typeof element.value === "string" ? element.value : ""))].join("\n"),
  };
});

// Texts that are shown only after a button or a key is pressed.
async function act(page, note) {
  const at = (path) => page.goto(gateway.base + path);
  const channel = `/channels/${rows.channel}`;
  await at(`${channel}/models`);
  await page.getByRole("button", { name: "Fetch from the provider" }).click();
  await page.waitForLoadState();
  await note("models of the provider");
  await at(`${channel}/test`);
  await page.getByRole("button", { name: "Fetch from the provider" }).click();
  await page.getByLabel("All", { exact: true }).check();
  await page.getByRole("button", { name: "Test the chosen" }).click();
  await page.locator("tr.end").waitFor();
  await note("tested models");
  await at(`/log?range=24h`);
  await page.locator("[data-record]").first().click();
  await page.locator(".drawer[data-open]").waitFor();
  await note("the drawer of a record");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("h");
  await page.locator("dialog.palette .hits a").nth(3).waitFor();
  await note("search over the page");
  await at(`/key`);
  await page.locator("[name=key]").fill(rows.secret);
  await page.locator("main form button").first().click();
  await page.waitForLoadState();
  await note("check of a key");
  await at(`/playground?model=${encodeURIComponent(rows.model)}`);
  await page.locator(".answer").first().waitFor();
  await page.locator("#group").selectOption(rows.groupName);
  await page.locator("[data-make-key]").click();
  await page.locator("#message").fill(callerSends.message);
  await page.locator("#message").press("Control+Enter");
  await page.locator("[data-state].ok:not([hidden])").waitFor();
  await note("playground");
}

test("no page takes a stored text for markup, and pages show what was stored", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults, context) => {
    await context.addInitScript(() => { window.hostile = () => { window.wasHostile = true; }; });
    const [wrong, pages] = [[], []];
    page.on("dialog", (dialog) => { wrong.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
    const note = async (name) => {
      const seen = await look(page);
      wrong.push(...[...seen.wrong, ...faults].map((what) => `${name}: ${what}`));
      faults.length = 0;
      pages.push(seen.text);
    };
    const routes = pageRoutes("GET").filter(({ path }) => !path.endsWith(".csv") && !path.includes("{passkey}"));
    const addresses = routes.map((route) => addressOf(route, rows));
    const further = [
      ...records.map((record) => `/log/${record}`), "/overview?range=24h&split=key", "/overview?range=24h&split=channel", "/audit?limit=200", `/log?${rows.view}`,
      `/members/${rows.member}`, "/models?view=table", "/settings?q=console", "/log?range=24h&outcome=refused",
      `/channels/${rows.channel}?model=fails&caller=${encodeURIComponent(`key:${rows.key}`)}`,
    ];
    for (const address of [...addresses, ...further]) {
      await page.goto(gateway.base + address);
      await note(address);
    }
    await act(page, note);
    assert.deepEqual(wrong, []);
    const hidden = new Set(FIELDS.hidden);
    assert.deepEqual(hostile.unseenIn(pages).filter((field) => !hidden.has(field)), [], "texts that no page shows as they were stored");
  });
});
