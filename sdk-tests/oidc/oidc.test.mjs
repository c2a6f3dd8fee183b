// Signing in at a real OpenID provider.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { Browser } from "./browser.mjs";
import { SECRET, startProvider } from "./provider.mjs";

const PEOPLE = {
  ann: { preferred_username: "ann", email: "Ann@example.com", email_verified: true, groups: ["staff", "team-a"] },
  bob: { preferred_username: "bob", email: "bob@example.com", email_verified: true, groups: ["staff"] },
  eve: { preferred_username: "eve", email: "eve@elsewhere.org", email_verified: true, groups: ["staff"] },
  mal: { preferred_username: "mal", email: "mal@example.com", email_verified: false, groups: ["staff"] },
  guest: { preferred_username: "guest", email: "guest@example.com", email_verified: true, groups: ["guests"] },
};

let base;
let provider;
const stops = [];

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

// Starts a gateway with this client; returns its address and a function for the admin API.
async function startGateway(port, settings) {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-oidc-"));
  const data = join(folder, "data");
  const url = `http://127.0.0.1:${port}`;
  const environment = { ...process.env, TOLLGATE_CONSOLE__URL: url, TOLLGATE_OIDC__PRIVATE_NETWORK: "true" };
  for (const [name, value] of Object.entries(settings)) environment[`TOLLGATE_OIDC__${name}`] = value;
  const program = process.env.TOLLGATE;
  for (const name of ["TOLLGATE", "PROVIDER", "CATALOG"]) delete environment[name];
  const child = spawn(program, ["serve", "--json", "--listen", `127.0.0.1:${port}`, "--data", data], {
    stdio: ["ignore", "pipe", "ignore"],
    cwd: folder,
    env: environment,
  });
  stops.push(async () => {
    const exited = once(child, "exit");
    child.kill("SIGTERM");
    await exited;
    rmSync(folder, { recursive: true, force: true });
  });
  for await (const _ of createInterface({ input: child.stdout })) break;
  const made = spawnSync(program, ["admin-key", "create", "root", "--json", "--data", data], { env: environment });
  const { key } = JSON.parse(made.stdout);
  const admin = async (method, path, body) => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const response = await fetch(`${url}/admin/v1/${path}`, { method, headers, body: body && JSON.stringify(body) });
    const text = await response.text();
    return text === "" ? {} : JSON.parse(text);
  };
  return { url, admin };
}

before(async () => {
  const port = await freePort();
  base = { port, callback: `http://127.0.0.1:${port}/admin/v1/oidc/callback` };
  provider = await startProvider(base.callback, PEOPLE);
  stops.push(async () => provider.stop());
  Object.assign(
    base,
    await startGateway(port, {
      ISSUER: provider.issuer,
      CLIENT_ID: "tollgate",
      CLIENT_SECRET: SECRET,
      SCOPES: "openid profile email groups",
      ROLE_CLAIM: "groups",
      ADMINS: "bosses",
      OPERATORS: "ops",
      MEMBERS: "staff",
      GROUP_CLAIM: "groups",
      GROUPS: "team-a=alpha, team-b=beta",
      DOMAINS: "example.com",
      CREATE_MEMBERS: "true",
      DISPLAY_NAME: "Example",
    }),
  );
  for (const name of ["alpha", "beta", "own"]) await base.admin("POST", "groups", { name, visibility: "private" });
});

after(async () => {
  for (const stop of stops.reverse()) await stop();
});

async function signIn(account, to = "/console?tab=keys", gateway = base) {
  provider.account = account;
  const browser = new Browser();
  const end = await browser.follow(`${gateway.url}/admin/v1/oidc/start?to=${encodeURIComponent(to)}`, (url) => url === gateway.url + to);
  const me = async () => (await browser.get(`${gateway.url}/admin/v1/me`)).json();
  return { browser, end, me };
}

async function refusal(end) {
  return [end.response.status, (await end.response.json()).error.code];
}

test("the provider is named to the sign-in page", async () => {
  const methods = await (await fetch(`${base.url}/admin/v1/session/methods`)).json();
  assert.deepEqual(methods, { password: true, oidc: "Example", passkey_origin: `http://localhost:${base.port}`, remember: true, registration: false });
});

test("claims make the member with role and groups, and each sign-in sets them again", async () => {
  const first = await signIn("ann");
  assert.equal(first.end.url, `${base.url}/console?tab=keys`);
  const me = await first.me();
  assert.deepEqual([me.name, me.scope], ["ann", "member"]);
  assert.deepEqual([...first.browser.cookies.get(base.url).keys()], ["tollgate_session"], "the state was removed");
  assert.deepEqual((await base.admin("GET", "members/ann")).groups, ["alpha"]);
  const login = await base.admin("GET", "members/ann/login");
  assert.deepEqual([login.email, login.oidc, login.password], ["ann@example.com", true, false]);

  await base.admin("PATCH", "members/ann", { groups: ["alpha", "own"] });
  PEOPLE.ann.groups = ["ops", "team-b"];
  const second = await signIn("ann");
  assert.equal((await second.me()).scope, "operator");
  assert.deepEqual((await base.admin("GET", "members/ann")).groups, ["own", "beta"]);
  assert.equal((await first.me()).error.code, "session_ended", "sessions of the former role have ended");
  const sessions = await base.admin("GET", "sessions?member=ann");
  assert.equal(sessions.items.at(-1).method, "oidc");
  assert.equal((await base.admin("GET", "members")).items.filter((member) => member.name === "ann").length, 1);

  await base.admin("PATCH", "members/ann", { status: "suspended" });
  assert.deepEqual(await refusal((await signIn("ann")).end), [403, "not_admitted"]);
});

test("the choice to be remembered survives the way to the provider", async () => {
  provider.account = "bob";
  for (const remember of [true, false]) {
    const browser = new Browser();
    await browser.follow(`${base.url}/admin/v1/oidc/start?to=/console&remember=${remember}`, (url) => url === `${base.url}/console`);
    const sessions = (await (await browser.get(`${base.url}/admin/v1/sessions`)).json()).items;
    assert.equal(sessions.find((session) => session.current).remembered, remember);
  }
});

test("people without the domain, a verified address or a role are not admitted", async () => {
  for (const account of ["eve", "mal", "guest"]) {
    const { end, browser } = await signIn(account);
    assert.deepEqual(await refusal(end), [403, "not_admitted"], account);
    assert.equal(browser.cookies.get(base.url).has("tollgate_session"), false);
  }
  const names = (await base.admin("GET", "members")).items.map((member) => member.name);
  assert.deepEqual(names.filter((name) => ["eve", "mal", "guest"].includes(name)), []);
});

test("an address links a member who cannot sign in, and no other", async () => {
  await base.admin("POST", "members", { name: "Robert" });
  await base.admin("PATCH", "members/Robert/login", { email: "bob@example.com" });
  await base.admin("PUT", "members/Robert/password", { new_password: "chosen by another person" });
  assert.equal((await (await signIn("bob")).me()).name, "bob", "a password was set before: it is another account");
  await base.admin("DELETE", "members/bob");
  await base.admin("DELETE", "members/Robert");
  await base.admin("POST", "members", { name: "Bobby" });
  await base.admin("PATCH", "members/Bobby/login", { email: "bob@example.com" });
  assert.equal((await (await signIn("bob")).me()).name, "Bobby");
});

test("a member of the provider adds no password, and admins unlink the account", async () => {
  const { browser, me } = await signIn("bob");
  const { name, csrf_token: token } = await me();
  const headers = { origin: base.url, "x-csrf-token": token, "content-type": "application/json" };
  const body = JSON.stringify({ password: "none so far", new_password: "correct horse battery" });
  const response = await browser.get(`${base.url}/admin/v1/password`, { method: "PUT", headers, body });
  assert.deepEqual(await refusal({ response }), [409, "no_password"]);
  assert.equal((await base.admin("GET", `members/${name}/login`)).password, false);
  const login = await base.admin("PATCH", `members/${name}/login`, { oidc: false, email: null });
  assert.deepEqual([login.oidc, login.email], [false, null]);
  assert.equal((await me()).error.code, "session_ended");
  assert.equal((await (await signIn("bob")).me()).name, "bob", "another member: no address names the former one");
});

test("a suspended member stays suspended, even if the claims change", async () => {
  PEOPLE.zoe = { preferred_username: "zoe", email: "zoe@example.com", email_verified: true, groups: ["staff"] };
  await signIn("zoe");
  await base.admin("PATCH", "members/zoe", { status: "suspended" });
  PEOPLE.zoe.groups = ["ops"];
  assert.deepEqual(await refusal((await signIn("zoe")).end), [403, "not_admitted"]);
  const member = await base.admin("GET", "members/zoe");
  assert.deepEqual([member.status, member.role], ["suspended", "member"]);
});

test("a cancelled sign-in is reported", async () => {
  assert.deepEqual(await refusal((await signIn(undefined)).end), [401, "oidc_refused"]);
});

test("browsers are sent to paths of the console only", async () => {
  for (const to of ["//evil.example.com", "https://evil.example.com", "/\\evil.example.com", "evil", "/\nx", ""]) {
    const response = await new Browser().get(`${base.url}/admin/v1/oidc/start?to=${encodeURIComponent(to)}`);
    assert.equal(response.status, 400, to);
  }
});

test("a code is redeemed only once, and only in the browser that began", async () => {
  provider.account = "bob";
  const [victim, attacker] = [new Browser(), new Browser()];
  const isCallback = (url) => url.startsWith(base.callback);
  const { url } = await attacker.follow(`${base.url}/admin/v1/oidc/start`, isCallback);
  // The attacker's code in another browser would sign it in as the attacker.
  for (const browser of [victim, new Browser()]) {
    assert.deepEqual(await refusal({ response: await browser.get(url) }), [401, "challenge_ended"]);
  }
  await victim.follow(`${base.url}/admin/v1/oidc/start`, isCallback);
  assert.deepEqual(await refusal({ response: await victim.get(url) }), [401, "challenge_ended"], "it is of another state");
  const forged = url.replace(/code=[^&]*/, "code=forged");
  assert.deepEqual(await refusal({ response: await attacker.get(forged) }), [401, "oidc_refused"]);
  const kept = new Map(attacker.cookies.get(base.url));
  assert.equal((await attacker.get(url)).status, 303);
  attacker.cookies.set(base.url, kept);
  assert.deepEqual(await refusal({ response: await attacker.get(url) }), [401, "oidc_refused"], "it was redeemed before");
});

test("a public client with elliptic keys signs in with its proof alone", async () => {
  const port = await freePort();
  const other = await startProvider(`http://127.0.0.1:${port}/admin/v1/oidc/callback`, PEOPLE);
  stops.push(async () => other.stop());
  other.account = "bob";
  const gateway = await startGateway(port, { ISSUER: other.issuer, CLIENT_ID: "public", CREATE_MEMBERS: "true" });
  const browser = new Browser();
  await browser.follow(`${gateway.url}/admin/v1/oidc/start`, (url) => url === `${gateway.url}/`);
  const me = await (await browser.get(`${gateway.url}/admin/v1/me`)).json();
  assert.deepEqual([me.name, me.scope], ["bob", "member"]);
  const unknown = await startGateway(await freePort(), { ISSUER: provider.issuer, CLIENT_ID: "tollgate", CLIENT_SECRET: "wrong" });
  assert.equal((await fetch(`${unknown.url}/admin/v1/oidc/start`, { redirect: "manual" })).status, 303);
});

test("a private address is reached only if that is allowed", async () => {
  const issuer = provider.issuer.replace("http:", "https:");
  const gateway = await startGateway(await freePort(), { ISSUER: issuer, CLIENT_ID: "tollgate", PRIVATE_NETWORK: "false" });
  const response = await fetch(`${gateway.url}/admin/v1/oidc/start`, { redirect: "manual" });
  assert.deepEqual(await refusal({ response }), [502, "oidc_failed"]);
});
