// Passkeys with Chromium's virtual authenticator: added on the profile, used instead of a password, renamed and removed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { authenticator } from "./authenticator.mjs";
import { VIEWS, checkPage, openPage, screenshot } from "./browser.mjs";
import { PASSWORD, signIn } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";

// The address at which browsers offer passkeys.
const local = { get base() { return gateway.base.replace("127.0.0.1", "localhost"); } };

useGateway();

const passkeys = (page) => page.getByRole("region", { name: "Passkeys" }).first();

async function beginAdding(page, name, password = PASSWORD) {
  await page.goto(`${local.base}/profile`);
  await page.getByLabel("Name", { exact: true }).fill(name);
  await page.locator("#password_for_passkey").fill(password);
  await page.getByRole("button", { name: "Add a passkey" }).click();
}

async function finishAdding(page) {
  await page.getByRole("button", { name: "Make the passkey" }).click();
  await page.getByText("The passkey was added.").waitFor();
}

// Opens a page whose owner is signed in and has a passkey of this name.
async function openWithPasskey(name) {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  const device = await authenticator(page);
  await signIn(page, local);
  await beginAdding(page, name);
  await finishAdding(page);
  return { context, page, faults, device };
}

async function signOut(page) {
  await page.goto(`${local.base}/profile`);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL("**/sign-in");
}

test("a passkey is added, signs in without a password, is renamed and removed", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  const device = await authenticator(page);
  await signIn(page, local);
  await page.goto(`${local.base}/profile`);
  await checkPage(page, faults, "profile without passkeys");
  await screenshot(page, "passkeys-none");

  await beginAdding(page, "Laptop", "not the password");
  await page.locator("#password_for_passkey[aria-invalid]").waitFor();
  assert.equal((await device.credentials()).length, 0, "no passkey is made before the password is proved");
  assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "Laptop");

  await beginAdding(page, "Laptop");
  await checkPage(page, faults, "new passkey");
  await screenshot(page, "passkeys-new");
  await device.verifies(false);
  await page.getByRole("button", { name: "Make the passkey" }).click();
  await page.getByText("No passkey was made").waitFor();
  await checkPage(page, faults, "new passkey, cancelled");
  await screenshot(page, "passkeys-cancelled");
  await device.verifies(true);
  await finishAdding(page);
  const [made] = await device.credentials();
  assert.ok(made.isResidentCredential && made.rpId === "localhost", JSON.stringify(made));
  await passkeys(page).getByText("Laptop").waitFor();
  await checkPage(page, faults, "profile with a passkey");
  await screenshot(page, "passkeys-one");

  await beginAdding(page, "Again");
  await page.getByRole("button", { name: "Make the passkey" }).click();
  await page.getByText("This device has a passkey for you already.").waitFor();

  await signOut(page);
  await checkPage(page, faults, "sign-in with passkeys");
  await screenshot(page, "passkeys-sign-in");
  await device.verifies(false);
  await page.getByRole("button", { name: "Sign in with a passkey" }).click();
  await page.getByText("You are not signed in").waitFor();
  await checkPage(page, faults, "sign-in with passkeys, cancelled");
  await screenshot(page, "passkeys-sign-in-cancelled");
  await device.verifies(true);
  await page.getByRole("button", { name: "Sign in with a passkey" }).click();
  await page.waitForURL("**/console");

  await page.goto(`${local.base}/profile`);
  assert.ok(await page.getByRole("cell", { name: "Passkey", exact: true }).count() > 0, "how the session began");
  await page.getByRole("link", { name: "Change", exact: true }).click();
  await page.getByLabel("Name", { exact: true }).fill("Work laptop");
  await checkPage(page, faults, "a passkey");
  await screenshot(page, "passkeys-detail");
  await page.getByRole("button", { name: "Save" }).click();
  await passkeys(page).getByText("Work laptop").waitFor();
  await page.getByRole("link", { name: "Change", exact: true }).click();
  await page.getByRole("button", { name: "Delete passkey" }).click();
  await page.getByText("The passkey was deleted.").waitFor();
  await page.goto(`${local.base}/audit`);
  for (const action of ["Passkey added", "Passkey renamed", "Passkey deleted"]) {
    assert.ok(await page.getByText(action).count() > 0, action);
  }

  await signOut(page);
  await page.getByRole("button", { name: "Sign in with a passkey" }).click();
  await page.getByText("This passkey is not valid here").waitFor();
  await checkPage(page, faults, "sign-in with a passkey that was removed");
  await context.close();
});

test("the tick of the sign-in applies to passkeys", async () => {
  const { context, page } = await openWithPasskey("Remembered");
  for (const isRemembered of [true, false]) {
    await signOut(page);
    await page.getByLabel("Remember me on this device").setChecked(isRemembered);
    await page.getByRole("button", { name: "Sign in with a passkey" }).click();
    await page.waitForURL("**/console");
    const { expires } = (await context.cookies(local.base)).find(({ name }) => name === "tollgate_session");
    assert.equal(expires > 0, isRemembered);
  }
  await page.goto(`${local.base}/profile`);
  await page.getByRole("link", { name: "Change", exact: true }).click();
  await page.getByRole("button", { name: "Delete passkey" }).click();
  await context.close();
});

test("passkeys go to the page that was asked for", async () => {
  const { context, page } = await openWithPasskey("Phone");
  await signOut(page);
  await page.goto(`${local.base}/sign-in?to=/keys`);
  await page.getByRole("button", { name: "Sign in with a passkey" }).click();
  await page.waitForURL("**/keys");
  await context.close();
});

test("where browsers offer no passkeys none is asked for", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await page.goto(`${gateway.base}/sign-in`);
  assert.equal(await page.getByRole("button", { name: "Sign in with a passkey" }).count(), 0, "at an address without a name");
  await signIn(page, gateway);
  await page.goto(`${gateway.base}/profile`);
  await page.getByText(`at ${local.base}.`).waitFor();
  assert.equal(await page.getByRole("button", { name: "Add a passkey" }).count(), 0);
  await checkPage(page, faults, "profile at an address without a name");
  await context.close();
  const without = await openPage(browser, { ...VIEWS.light, locale: "en", javaScriptEnabled: false });
  await without.page.goto(`${local.base}/sign-in`);
  assert.equal(await without.page.getByRole("button", { name: "Sign in with a passkey" }).count(), 0, "without JavaScript");
  await signIn(without.page, local);
  await without.context.close();
});

test("pages with passkeys are readable in every view and language", async () => {
  for (const [view, options] of Object.entries(VIEWS)) {
    for (const locale of ["en", "zh-CN"]) {
      const { context, page, faults } = await openPage(browser, { ...options, locale });
      await authenticator(page);
      await page.goto(`${local.base}/sign-in`);
      await page.locator("form[data-passkey] button").waitFor();
      await checkPage(page, faults, `sign-in ${view} ${locale}`);
      await screenshot(page, `passkeys-sign-in-${view}-${locale}`);
      await signIn(page, local);
      await page.goto(`${local.base}/profile`);
      await checkPage(page, faults, `profile ${view} ${locale}`);
      await screenshot(page, `passkeys-profile-${view}-${locale}`);
      await page.goto(await page.locator('a[href*="/profile/passkeys/"]').first().evaluate((link) => link.href));
      await checkPage(page, faults, `passkey ${view} ${locale}`);
      await screenshot(page, `passkeys-detail-${view}-${locale}`);
      await context.close();
    }
  }
});
