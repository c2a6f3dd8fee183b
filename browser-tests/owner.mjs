// The admin of every gateway in these tests: the first password, and signing in.
import { VIEWS, openPage } from "./browser.mjs";

export const PASSWORD = "correct horse battery";

// Opens the set-up link and sets the password.
export async function setPassword(page, gateway) {
  await page.goto(gateway.setupLink);
  await page.locator("#new_password").fill(PASSWORD);
  await page.locator("#new_password_again").fill(PASSWORD);
  await page.locator("main button.primary").click();
  await page.waitForURL("**/setup/gateway");
}

// Signs in as the admin, or as another member with the same password.
export async function signIn(page, gateway, name = "owner") {
  await page.goto(`${gateway.base}/sign-in`);
  await page.locator("#login").fill(name);
  await page.locator("#password").fill(PASSWORD);
  await page.locator("main button.primary").click();
  await page.waitForURL((url) => !url.pathname.endsWith("/sign-in"));
}

// Sets the password of a gateway, for tests of anything but the first run.
export async function setUp(browser, gateway) {
  const { context, page } = await openPage(browser, VIEWS.light);
  await setPassword(page, gateway);
  await context.close();
}

// A page of a new session of a member, in English unless the options say otherwise.
export async function asMember(name, browser, gateway, options, use) {
  const { context, page, faults } = await openPage(browser, { locale: "en", ...options });
  await signIn(page, gateway, name);
  await use(page, faults, context);
  await context.close();
}

export const asOwner = (...rest) => asMember("owner", ...rest);

// Sends a request of the admin API from a page of the admin, and returns the answer. `headers` are sent, too.
export async function callApi(page, method, path, body, headers = {}) {
  return page.evaluate(
    async ([method, path, body, headers]) => {
      const token = (await (await fetch("/admin/v1/me")).json()).csrf_token;
      const answer = await fetch(path, {
        method,
        headers: { "content-type": "application/json", "x-csrf-token": token, ...headers },
        body: body && JSON.stringify(body),
      });
      const text = await answer.text();
      if (!answer.ok) throw new Error(`${method} ${path}: ${text}`);
      return text ? JSON.parse(text) : null;
    },
    [method, path, body, headers],
  );
}
