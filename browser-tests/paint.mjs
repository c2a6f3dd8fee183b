// Measures the time from the begin of a navigation to the first contentful paint, for `cargo xtask bench --only usage`. `BASE` is the
// gateway's address, `LOGIN` and `PASSWORD` those of a member, `PATHS` a JSON list of paths and `RUNS` how often each is opened. Prints a
// line of JSON with the path and its times in milliseconds for each page. Every run begins with an empty cache.
import { launch } from "./browser.mjs";

const { BASE, LOGIN, PASSWORD, PATHS, RUNS } = process.env;
const browser = await launch();

async function signIn() {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${BASE}/sign-in`);
  await page.locator("#login").fill(LOGIN);
  await page.locator("#password").fill(PASSWORD);
  await page.locator("main button.primary").click();
  await page.waitForURL("**/console");
  const session = await context.storageState();
  await context.close();
  return session;
}

async function firstPaint(storageState, path) {
  const context = await browser.newContext({ storageState });
  const page = await context.newPage();
  await page.goto(BASE + path, { waitUntil: "load" });
  const time = await page.evaluate(() => new Promise((resolve) => {
    new PerformanceObserver((entries) => {
      const [paint] = entries.getEntriesByName("first-contentful-paint");
      if (paint) resolve(paint.startTime);
    }).observe({ type: "paint", buffered: true });
  }));
  await context.close();
  return time;
}

const session = await signIn();
for (const path of JSON.parse(PATHS)) {
  const times = [];
  for (let run = 0; run < Number(RUNS); run += 1) times.push(await firstPaint(session, path));
  console.log(JSON.stringify({ path, times }));
}
await browser.close();
