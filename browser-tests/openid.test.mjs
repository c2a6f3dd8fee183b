// Signing in at an OpenID provider: who is admitted, who is refused and why, and the test of the provider.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { VIEWS, checkPage, screenshot } from "./browser.mjs";
import { CLIENT, startOpenid } from "./openid.mjs";
import { asOwner } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";
import { signOut, visit } from "./visitors.mjs";

const verified = (sub, email) => ({ sub, preferred_username: sub, email, email_verified: true });
const PEOPLE = { Ida: verified("ida-1", "ida@example.com"), Omar: verified("omar-1", "omar@example.com") };
const settings = {};
let openid;

useGateway({
  environment: () => settings,
  // The settings of the provider need the console's address, which is known once the gateway has started.
  prepare: async () => {
    openid = await startOpenid(PEOPLE);
    const values = {
      CONSOLE__URL: gateway.base, OIDC__ISSUER: openid.issuer, OIDC__CLIENT_ID: CLIENT.id, OIDC__CLIENT_SECRET: CLIENT.secret,
      OIDC__DISPLAY_NAME: "Acme ID", OIDC__PRIVATE_NETWORK: "true",
    };
    for (const [name, value] of Object.entries(values)) settings[`TOLLGATE_${name}`] = value;
    await gateway.end("SIGTERM");
    await gateway.startAgain();
  },
});
after(() => openid?.stop());

// Goes to the provider's page and chooses there.
async function chooseAtProvider(page, name, from = "/sign-in") {
  await page.goto(`${gateway.base}${from}`);
  await page.getByRole("link", { name: "Sign in with Acme ID" }).click();
  await page.waitForURL(`${openid.issuer}/**`);
  await page.getByRole("link", { name, exact: true }).click();
}

test("a member signs in at the OpenID provider by a verified e-mail address", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/members/new`);
    await page.locator("#name").fill("ida");
    await page.getByRole("button", { name: "Create member" }).click();
    await page.locator("#email").fill("ida@example.com");
    await page.locator("form[action$='/login'] button").click();
    await page.getByText("Saved", { exact: true }).waitFor();
  });
  await visit(async (page, faults) => {
    await page.goto(`${gateway.base}/sign-in`);
    await checkPage(page, faults, "sign-in with a provider");
    await screenshot(page, "openid-sign-in.light");
    await chooseAtProvider(page, "Ida", "/keys");
    await page.waitForURL(`${gateway.base}/keys`);
    await page.goto(`${gateway.base}/profile`);
    await page.getByRole("cell", { name: "OpenID", exact: true }).waitFor();
    await page.getByText("Linked", { exact: true }).waitFor();
    assert.equal(await page.locator("input[type=password]").count(), 0, "there is no password to change");
    await checkPage(page, faults, "profile of a linked member");
    await screenshot(page, "openid-profile.light");
    // The code of that sign-in is used up, and the browser has forgotten it.
    await signOut(page);
    await chooseAtProvider(page, "Ida");
    await page.waitForURL("**/console");
  });
  assert.deepEqual(openid.refused, [], "the provider checks client, redirect address and PKCE");
});

test("a sign-in at the OpenID provider that is refused says why, and can be begun again", async () => {
  const cases = [
    ["Cancel", 401, "The OpenID provider did not complete the sign-in. Begin again."],
    ["Omar", 403, "This account may not sign in here. Ask an admin for an invite."],
    ["Ida", 502, "The sign-in at the OpenID provider failed. Begin again;", (claims) => ({ ...claims, nonce: "of another sign-in" })],
    ["Ida", 502, "The sign-in at the OpenID provider failed. Begin again;", (claims) => ({ ...claims, aud: "another client" })],
  ];
  for (const [name, status, says, changes] of cases) {
    await visit(async (page, faults) => {
      openid.changes = changes ?? ((claims) => claims);
      const answered = page.waitForResponse("**/admin/v1/oidc/callback?**");
      await chooseAtProvider(page, name);
      assert.equal((await answered).status(), status, name);
      await page.getByText(says).waitFor();
      await page.getByRole("heading", { name: status === 403 ? "Not allowed" : "The request cannot be answered" }).waitFor();
      if (name === "Cancel") await checkPage(page, faults, "OpenID, refused");
      await screenshot(page, `openid-refused-${status}.light`);
      openid.changes = (claims) => claims;
      await page.getByRole("link", { name: "Begin again" }).click();
      await page.waitForURL("**/sign-in");
      await page.goto(`${gateway.base}/profile`);
      await page.waitForURL("**/sign-in?to=%2Fprofile");
    });
  }
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/members?search=omar`);
    await page.getByText("No member matches.").waitFor();
  });
});

test("the OpenID provider is tested on the page of the settings", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/settings?q=oidc`);
    await page.getByRole("button", { name: "Test the provider" }).click();
    await page.getByText(`Redirect address to register at the provider: ${gateway.base}/admin/v1/oidc/callback`).waitFor();
    for (const stage of ["Discovery", "Issuer", "Endpoints", "Keys", "Clock", "Redirect address", "Client"]) {
      await page.locator(".stages li.ok", { hasText: stage }).first().waitFor();
    }
    await page.locator(".stages").getByText("Passed").waitFor();
    assert.equal(await page.locator(".stages li.bad").count(), 0);
    await checkPage(page, faults, "test of the provider");
    await screenshot(page, "openid-tested.light");
  });
});
