// Every page of the console, by the table of pages: axe in both themes and both languages with everything unfolded, no motion for readers
// who prefer none, and without JavaScript.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkBothThemes, checkWithoutColours, openPage } from "./browser.mjs";
import { addressOf, isNoPage, makePasskey, makeRows, pageRoutes, unfold } from "./every-page.mjs";
import { asOwner } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";

// Members are redirected, or need no link.
const OF_VISITORS = ["/invite", "/register", "/reset-password", "/setup", "/sign-in"];
const pages = pageRoutes("GET").filter(({ path }) => !isNoPage(path));
const ofVisitors = pages.filter(({ seenBy }) => seenBy === "anyone");
const ofMembers = pages.filter(({ path }) => !OF_VISITORS.includes(path));

let rows;

useGateway({ prepare: makeEverything });

async function makeEverything() {
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/profile`);
    rows = await makeRows(page, gateway);
  });
  rows.passkey = await makePasskey(browser, gateway, "owner");
}

async function visit(page, route) {
  const address = addressOf(route, rows);
  const answer = await page.goto(gateway.base + address);
  assert.equal(answer.status(), route.path === "/setup" ? 400 : 200, address);
  assert.equal(new URL(page.url()).pathname + new URL(page.url()).search, address, "it redirects");
  return address;
}

// Animations and transitions that take more than 10 ms, and smooth scrolling.
const moving = (page) => page.evaluate(() => {
  const longest = (times) => Math.max(...times.split(",").map((time) => parseFloat(time) * (time.trim().endsWith("ms") ? 1 : 1000)));
  const found = document.getAnimations().map((animation) => animation.animationName ?? animation.transitionProperty ?? "an animation");
  for (const element of document.querySelectorAll("*")) {
    for (const part of [null, "::before", "::after"]) {
      const style = getComputedStyle(element, part);
      if (part && style.content === "none") continue;
      const animates = style.animationName !== "none" && longest(style.animationDuration) > 10;
      if (animates || longest(style.transitionDuration) > 10 || style.scrollBehavior === "smooth") found.push(`${element.tagName}.${element.className}${part ?? ""}`);
    }
  }
  return found;
});

async function checkPages(page, faults, routes, who) {
  const wrong = [];
  for (const route of routes) {
    const name = `${await visit(page, route)} of ${who}`;
    await unfold(page);
    await checkBothThemes(page, faults, name).catch((error) => wrong.push(error.message));
    faults.length = 0;
    wrong.push(...(await moving(page)).map((what) => `${name}: ${what} moves`));
  }
  assert.deepEqual(wrong, []);
}

test("every page of members is accessible in both themes with everything unfolded, and nothing moves", async () => {
  await asOwner(browser, gateway, VIEWS.light, (page, faults) => checkPages(page, faults, ofMembers, "an admin"));
});

test("every page of visitors is accessible in both themes with everything unfolded, and nothing moves", async () => {
  const { context, page, faults } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await checkPages(page, faults, ofVisitors, "a visitor");
  await context.close();
});

async function checkInChinese(page, faults, routes, who) {
  const wrong = [];
  for (const route of routes) {
    const name = `${await visit(page, route)} of ${who}, Chinese`;
    await unfold(page);
    const language = await page.locator("html").getAttribute("lang");
    if (language !== "zh-CN") wrong.push(`${name}: its language is ${language}`);
    await checkWithoutColours(page, faults, name).catch((error) => wrong.push(error.message));
    faults.length = 0;
  }
  assert.deepEqual(wrong, []);
}

test("every page is accessible and as wide as the window in Chinese", async () => {
  const options = { ...VIEWS.light, locale: "zh-CN" };
  await asOwner(browser, gateway, options, (page, faults) => checkInChinese(page, faults, ofMembers, "an admin"));
  const { context, page, faults } = await openPage(browser, options);
  await checkInChinese(page, faults, ofVisitors, "a visitor");
  await context.close();
});

// Faults of a page without scripts: an empty main part, an element that waits for a script, a button without effect.
const unreadable = (page) => page.evaluate(() => {
  const seen = (selector) => [...document.querySelectorAll(selector)].filter((element) => element.checkVisibility());
  const found = [];
  if (document.querySelector("main").innerText.trim().length < 20) found.push("main is empty");
  if (seen("h1").length !== 1) found.push(`${seen("h1").length} titles`);
  found.push(...seen("[aria-busy=true], .part-loading, .skel").map((element) => `waits: ${element.outerHTML.slice(0, 100)}`));
  const idle = seen("button[type=button]").filter((button) => !button.querySelector("code"));
  return [...found, ...idle.map((button) => `does nothing: ${button.outerHTML.slice(0, 100)}`)];
});

test("every page is readable without JavaScript", async () => {
  const wrong = [];
  const visitAll = async (page, routes) => {
    for (const route of routes) {
      const address = await visit(page, route);
      wrong.push(...(await unreadable(page)).map((what) => `${address}: ${what}`));
    }
  };
  const options = { ...VIEWS.light, javaScriptEnabled: false };
  await asOwner(browser, gateway, options, (page) => visitAll(page, ofMembers));
  const { context, page } = await openPage(browser, { ...options, locale: "en" });
  await visitAll(page, ofVisitors);
  await context.close();
  assert.deepEqual(wrong, []);
});

test("a group is made, changed and removed without JavaScript", async () => {
  await asOwner(browser, gateway, { ...VIEWS.light, javaScriptEnabled: false }, async (page) => {
    await page.goto(`${gateway.base}/groups/new`);
    await page.locator("#name").fill("Plain");
    await page.getByLabel("edge", { exact: true }).check();
    await page.getByRole("button", { name: "Create group" }).click();
    await page.goto(`${gateway.base}/groups`);
    await page.getByRole("link", { name: "Plain", exact: true }).click();
    await page.locator("#description").fill("Without scripts");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("Saved", { exact: true }).waitFor();
    assert.equal(await page.locator("#description").inputValue(), "Without scripts");
    await page.getByText("Delete group").first().click();
    await page.locator("input[name=typed_name]").fill("Plane");
    await page.locator("form[action$='/remove'] button").click();
    await page.locator("input[name=typed_name][aria-invalid=true]").waitFor();
    await page.locator("input[name=typed_name]").fill("Plain");
    await page.locator("form[action$='/remove'] button").click();
    await page.getByText("Deleted.").waitFor();
    assert.equal(await page.getByRole("link", { name: "Plain", exact: true }).count(), 0);
  });
});
