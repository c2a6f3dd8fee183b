// Takes the pictures of the documentation from a gateway with the history of `tollgate-demo`, which `cargo xtask pictures` starts.
// `BASE` is its address, `PASSWORD` that of its members, `PICTURES` the folder. `ONLY` names one picture, `LOCALE` a language.
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { VIEWS, launch } from "./browser.mjs";

const { BASE, PASSWORD, PICTURES, ONLY, LOCALE = "en" } = process.env;
const WINDOW = { width: 1440, height: 900 };
const [QUESTION] = Object.keys(JSON.parse(readFileSync(process.env.ANSWERS, "utf8")));
const THEMES = ["light", "dark"];

// Pictures of pages for an admin and for a member: name, path, and actions before the picture is taken. `height` is the height of the
// picture if it differs from that of the window.
const PICTURES_OF = {
  mira: [
    { name: "overview", path: "/overview?range=24h", height: 1240 },
    { name: "log", path: "/log?range=24h", open: openRecord, height: 1100 },
    { name: "channels", path: "/channels", height: 640 },
    { name: "channel", path: "/channels/google", height: 1150 },
    { name: "keys", path: "/keys" },
  ],
  lin: [
    { name: "home", path: "/console", height: 1060 },
    { name: "models", path: "/models", height: 1000 },
    { name: "model", path: "/models/claude-sonnet-5-5", height: 1150 },
    { name: "playground", path: "/playground?model=claude-sonnet-5-5&model=gemini-3.8-flash", open: ask, height: 1000 },
  ],
};
const PHONE = {
  light: { member: "lin", name: "phone-home", path: "/console" },
  dark: { member: "mira", name: "phone-overview", path: "/overview?range=24h" },
};

// The record with several attempts that is nearest.
async function openRecord(page) {
  const records = page.locator("tr:has([data-record])");
  const retried = records.filter({ has: page.locator(".badge.warn") });
  await (await retried.count() ? retried : records).first().locator("[data-record]").first().click();
  await page.locator("#drawer").getByRole("heading").first().waitFor();
  await page.evaluate(() => scrollTo(0, 0));
}

// Runs under a key that the page makes.
async function ask(page) {
  await page.locator(".answer").nth(1).waitFor();
  await Promise.all([page.waitForResponse("**/admin/v1/me/playground-key"), page.locator("[data-make-key]").click()]);
  await page.locator("#message").fill(QUESTION);
  await page.locator("#message").focus();
  await page.keyboard.press("Control+Enter");
  await page.locator("[data-cost]").nth(1).filter({ hasText: "$" }).waitFor({ timeout: 60_000 });
}

async function signIn(context, member) {
  const page = await context.newPage();
  await page.goto(`${BASE}/sign-in`);
  await page.locator("#login").fill(member);
  await page.locator("#password").fill(PASSWORD);
  await page.locator("main button.primary").click();
  await page.waitForURL("**/console");
  return page;
}

async function take(page, { name, path, open, height }, theme, size) {
  if (ONLY && !name.startsWith(ONLY)) return;
  await page.setViewportSize({ width: size.width, height: height ?? size.height });
  await page.goto(BASE + path);
  await page.evaluate(() => document.fonts.ready);
  await open?.(page);
  await page.mouse.move(0, 0);
  await page.waitForTimeout(250);
  await page.screenshot({ path: join(PICTURES, `${name}.${theme}.png`) });
  console.log(`    ${name}, ${theme}`);
}

mkdirSync(PICTURES, { recursive: true });
const browser = await launch();
const options = { locale: LOCALE, timezoneId: "Europe/Berlin", reducedMotion: "reduce" };
for (const theme of THEMES) {
  for (const [member, pictures] of Object.entries(PICTURES_OF)) {
    const context = await browser.newContext({ ...options, colorScheme: theme, viewport: WINDOW });
    const page = await signIn(context, member);
    for (const picture of pictures) await take(page, picture, theme, WINDOW);
    await context.close();
  }
  const context = await browser.newContext({ ...options, ...VIEWS.phone, colorScheme: theme, deviceScaleFactor: 2 });
  const { member, ...picture } = PHONE[theme];
  await take(await signIn(context, member), picture, theme, VIEWS.phone.viewport);
  await context.close();
}
await browser.close();
