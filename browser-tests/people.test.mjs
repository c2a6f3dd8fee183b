// How people become members, and how they are notified about their budgets: the set-up link with a name, registration, the
// profile.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, openPage, screenshot } from "./browser.mjs";
import { PASSWORD, signIn } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";

useGateway({ isSetUp: false });

const LOOKS = [["light", "en"], ["dark", "en"], ["phone", "en"], ["phone", "zh-CN"], ["light", "zh-CN"]];

// Sends a form of the settings.
async function set(page, name, value) {
  await page.goto(`${gateway.base}/settings/${name}`);
  const field = page.locator("#value");
  if (await field.evaluate((element) => element.tagName === "SELECT")) await field.selectOption(value);
  else await field.fill(value);
  await page.locator("main form button.primary").first().click();
  await page.getByText("Saved").waitFor();
}

// A page in each theme and width, checked and saved as a picture.
async function look(path, name, prepare = () => {}) {
  for (const [view, locale] of LOOKS) {
    const { context, page, faults } = await openPage(browser, { ...VIEWS[view], locale });
    await prepare(page);
    await page.goto(`${gateway.base}${path}`);
    await checkPage(page, faults, `${name}, ${view}, ${locale}`);
    await screenshot(page, `${name}.${view}.${locale}`);
    await context.close();
  }
}

test("the first admin chooses a name, and who may register", async () => {
  await look(new URL(gateway.setupLink).pathname + new URL(gateway.setupLink).search, "set-up-name");
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await page.goto(gateway.setupLink);
  assert.equal(await page.locator("#name").inputValue(), "owner");
  await page.locator("#name").fill("ada lovelace");
  await page.locator("#new_password").fill("ada lovelace");
  await page.getByText("The password is the name").waitFor();
  await page.locator("#name").fill("ada");
  await page.locator("#new_password").fill(PASSWORD);
  await page.locator("#new_password_again").fill(PASSWORD);
  await page.locator("main button.primary").click();
  await page.waitForURL("**/setup/gateway");
  assert.equal(await page.locator("#registration").inputValue(), "invite");
  await checkPage(page, faults, "set-up, gateway");
  await screenshot(page, "set-up-registration.light.en");
  await page.locator("#registration").selectOption("open");
  await page.locator("main button.primary").click();
  await page.waitForURL("**/setup/channel");
  await context.close();
});

test("a visitor registers and reads what is left", async () => {
  await look("/sign-in", "sign-in-open");
  await look("/register", "register");
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await page.goto(`${gateway.base}/sign-in`);
  await page.getByRole("link", { name: "Create an account" }).click();
  await page.locator("#name").fill("ada");
  await page.locator("#new_password").fill(PASSWORD);
  await page.getByText("Hard to guess.").waitFor();
  await page.locator("#new_password_again").fill(PASSWORD);
  await page.keyboard.press("Enter");
  await page.getByText("This name or e-mail address cannot be used").waitFor();
  assert.equal(await page.locator("#name").inputValue(), "ada");
  await checkPage(page, faults, "register, refused");
  await screenshot(page, "register-refused.light.en");
  await page.locator("#name").fill("ben");
  await page.locator("#new_password").fill(PASSWORD);
  await page.locator("#new_password_again").fill(PASSWORD);
  await page.keyboard.press("Enter");
  await page.waitForURL("**/console");
  await checkPage(page, faults, "home of a new member");
  await context.close();
});

test("a member chooses when to be notified", async () => {
  const asBen = (page) => signIn(page, gateway, "ben");
  await look("/profile", "profile-notices", asBen);
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await asBen(page);
  await page.goto(`${gateway.base}/profile`);
  await page.locator("#notice_percents").fill("half");
  await page.locator("#notices button").click();
  await page.getByText("Whole numbers of 1 to 100").waitFor();
  await checkPage(page, faults, "profile, refused");
  await page.locator("#notice_percents").fill("50, 90");
  await page.locator("#notices button").click();
  await page.getByText("Saved").waitFor();
  assert.equal(await page.locator("#notice_percents").inputValue(), "50, 90");
  await context.close();
  // With a key the home page shows the balance, which is 0 and so below a dollar.
  const admin = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await signIn(admin.page, gateway, "ada");
  await admin.page.goto(`${gateway.base}/keys/new?member=ben`);
  await admin.page.locator("#name").fill("of ben");
  const member = admin.page.locator("#member");
  if (await member.count()) await member.fill("ben");
  await admin.page.locator("main button.primary").click();
  await admin.page.getByText("The key is ready").waitFor();
  await look("/console", "home-notice", asBen);
  await set(admin.page, "access.registration", "off");
  await look("/register", "register-closed");
  await look("/members/invites", "invites-off", (page) => signIn(page, gateway, "ada"));
  await admin.context.close();
});
