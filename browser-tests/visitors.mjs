// People who are not signed in: browsers of their own, and signing in and out.
import { VIEWS, openPage } from "./browser.mjs";
import { browser, gateway } from "./suite.mjs";

// A browser without a session.
export async function visit(use) {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await use(page, faults);
  await context.close();
}

export async function sendPassword(page, name, password) {
  await page.goto(`${gateway.base}/sign-in`);
  await page.locator("#login").fill(name);
  await page.locator("#password").fill(password);
  await page.locator("main button.primary").click();
}

export async function signOut(page) {
  await page.goto(`${gateway.base}/profile`);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL("**/sign-in");
}
