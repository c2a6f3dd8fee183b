// Debian's Chromium, and the checks of every page: accessibility, overflow, and errors of the browser.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

export const VIEWS = {
  light: { viewport: { width: 1440, height: 900 }, colorScheme: "light" },
  dark: { viewport: { width: 1440, height: 900 }, colorScheme: "dark" },
  phone: { viewport: { width: 390, height: 844 }, colorScheme: "light", isMobile: true, hasTouch: true },
};

export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
}

// A page that fails the test on any error of the browser: a script that throws, or something that the policy blocks. With `intercepts`,
// requests are intercepted from the start: where a test begins to intercept those of a page that is already shown (`page.route`), Chromium
// may still send the next one around the interception.
export async function openPage(browser, { intercepts = false, ...options } = {}) {
  const context = await browser.newContext({ reducedMotion: "reduce", ...options });
  if (intercepts) await context.route("**/no-page-has-this-address", (route) => route.continue());
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (message) => {
    // Statuses of pages that are refused on purpose are printed, too.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) faults.push(message.text());
  });
  return { context, page, faults };
}

// axe in an isolated world of the page, to which its content security policy does not apply: a function that runs these rules.
async function axeIn(page) {
  const client = await page.context().newCDPSession(page);
  const { frameTree } = await client.send("Page.getFrameTree");
  const { executionContextId } = await client.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  await client.send("Runtime.evaluate", { expression: `${axe};0`, contextId: executionContextId });
  return async (runOnly, rules = {}) => {
    const run = `axe.run(document, ${JSON.stringify({ runOnly, rules })}).then((result) => result.violations.map((violation) =>
      violation.id + ": " + violation.nodes.map((node) => node.target + " " + node.failureSummary).join("; ")))`;
    const { result } = await client.send("Runtime.evaluate", {
      expression: run, contextId: executionContextId, awaitPromise: true, returnByValue: true,
    });
    return result.value;
  };
}

// Overflow and errors of the browser.
export async function checkLayout(page, faults, name) {
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(overflow <= 0, `${name} is ${overflow} px too wide`);
  assert.deepEqual(faults, [], `errors of the browser on ${name}`);
}

export async function checkPage(page, faults, name) {
  const run = await axeIn(page);
  assert.deepEqual(await run(RULES), [], `axe on ${name}`);
  await checkLayout(page, faults, name);
}

// The same, and the colours of the dark theme. The page starts in the light theme.
export async function checkBothThemes(page, faults, name) {
  const run = await axeIn(page);
  assert.deepEqual(await run(RULES), [], `axe on ${name}`);
  await page.emulateMedia({ colorScheme: "dark" });
  assert.deepEqual(await run({ type: "rule", values: ["color-contrast"] }), [], `axe on ${name}, dark`);
  await page.emulateMedia({ colorScheme: "light" });
  await checkLayout(page, faults, name);
}

// The same without the rule about colours, which takes longest: for another language of a page whose colours are checked.
export async function checkWithoutColours(page, faults, name) {
  const run = await axeIn(page);
  assert.deepEqual(await run(RULES, { "color-contrast": { enabled: false } }), [], `axe on ${name}`);
  await checkLayout(page, faults, name);
}

export async function screenshot(page, name) {
  mkdirSync(process.env.SCREENSHOTS, { recursive: true });
  // As tall as the page, so that elements at the window's edge are at the end of the page.
  const { width, height } = page.viewportSize();
  const whole = await page.evaluate(() => document.documentElement.scrollHeight);
  await page.setViewportSize({ width, height: Math.max(height, whole) });
  await page.screenshot({ path: join(process.env.SCREENSHOTS, `${name}.png`) });
  await page.setViewportSize({ width, height });
}
