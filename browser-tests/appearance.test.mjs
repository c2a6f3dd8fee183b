// Texts of operators and where they appear: name, announcement, language and address of the gateway, the page of its API, the facts of a
// model, and the filters of channels and of the usage log.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, openPage, screenshot } from "./browser.mjs";
import { asOwner } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";

useGateway();

async function set(page, name, value) {
  await page.goto(`${gateway.base}/settings/${name}`);
  const field = page.locator("main [name=value]");
  if (await field.evaluate((element) => element.tagName) === "SELECT") await field.selectOption(value);
  else await field.fill(value);
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator("#toasts .toast").waitFor();
}

test("name, announcement and home text are on pages, as text and links only", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await set(page, "console.display_name", "Acme <b>models</b>");
    await page.goto(`${gateway.base}/settings/console.logo`);
    await page.locator("[data-pick-image] input[type=file]").setInputFiles({
      name: "logo.svg",
      mimeType: "image/svg+xml",
      buffer: Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><rect width="8" height="8" fill="#06c"/></svg>'),
    });
    await page.waitForFunction(() => document.querySelector("textarea[name=value]").value.startsWith("data:image/svg+xml;base64,"));
    await page.getByRole("button", { name: "Save" }).click();
    await page.locator(".brand img").first().waitFor();
    await checkPage(page, faults, "setting, an image");
    await page.locator("textarea[name=value]").fill("https://example.com/logo.png");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Choose a PNG, JPEG, WebP, GIF or SVG image").waitFor();
    await set(page, "console.announcement", "Away on Sunday <script>x</script>, see https://status.example.com/a?b=1.");
    await checkPage(page, faults, "setting, a text");
    await set(page, "console.announcement_level", "warning");
    await set(page, "console.home_text", "Help <b>is</b> at https://help.example.com.");
    await set(page, "console.api_url", "https://api.example.com");
    await page.goto(`${gateway.base}/channels`);
    assert.equal(await page.locator(".announcement").count(), 0, "pages of operators have none");
    await page.goto(`${gateway.base}/console`);
    await page.locator(".announcement").waitFor();
    const about = page.locator("section", { has: page.getByRole("heading", { name: "About this gateway" }) });
    await about.getByText("Help <b>is</b> at").waitFor();
    assert.equal(await about.getByRole("link").getAttribute("href"), "https://help.example.com");
    await screenshot(page, "home-text.light");
    await checkPage(page, faults, "home with an announcement");
  });
  for (const [view, options] of Object.entries(VIEWS)) {
    const { context, page, faults } = await openPage(browser, { ...options, locale: "en" });
    for (const path of ["models", "sign-in", "status"]) {
      await page.goto(`${gateway.base}/${path}`);
      assert.ok((await page.title()).endsWith("Acme <b>models</b>"), await page.title());
      await page.locator(".announcement.warn", { hasText: "Away on Sunday <script>x</script>, see" }).waitFor();
      const link = page.locator(".announcement a");
      assert.equal(await link.getAttribute("href"), "https://status.example.com/a?b=1");
      await checkPage(page, faults, `${path} with an announcement, ${view}`);
      await screenshot(page, `announcement-${path}.${view}`);
    }
    await context.close();
  }
});

test("readers who have not chosen a language get the one of the settings", async () => {
  await asOwner(browser, gateway, VIEWS.light, (page) => set(page, "console.language", "zh-CN"));
  const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en" });
  await page.goto(`${gateway.base}/docs`);
  assert.equal(await page.locator("html").getAttribute("lang"), "zh-CN");
  await page.getByRole("combobox").selectOption("en");
  await page.locator("html[lang=en]").waitFor();
  await context.close();
  await asOwner(browser, gateway, VIEWS.phone, async (page, faults) => {
    await page.goto(`${gateway.base}/profile`);
    await page.locator("main select#language, main [name=language]").last().selectOption("en");
    await page.locator("main [name=theme]").selectOption("dark");
    await page.locator("form[action$='/profile/time-zone'] button").click();
    await page.locator("html[lang=en][data-theme=dark]").waitFor();
    await checkPage(page, faults, "profile, phone");
    await set(page, "console.language", "auto");
  });
});

test("the page of the API has this gateway's address, endpoints, limits and errors", async () => {
  for (const [view, options] of Object.entries(VIEWS)) {
    for (const locale of ["en", "zh-CN"]) {
      const { context, page, faults } = await openPage(browser, { ...options, locale });
      await context.addCookies([{ name: "tollgate_language", value: locale, url: gateway.base }]);
      await page.goto(`${gateway.base}/docs`);
      await page.getByText("https://api.example.com/v1", { exact: true }).first().waitFor();
      await page.locator(".use .code:visible .ck", { hasText: "curl" }).waitFor();
      await page.locator("#endpoints", { hasText: "/v1beta/models/{model}:generateContent" }).waitFor();
      await page.locator("#limits", { hasText: "32 MiB" }).waitFor();
      await page.locator("#E40", { hasText: "no_available_accounts" }).waitFor();
      await checkPage(page, faults, `docs, ${view}, ${locale}`);
      await screenshot(page, `docs.${view}.${locale}`);
      await context.close();
    }
  }
  const { context, page } = await openPage(browser, { ...VIEWS.light, locale: "en", javaScriptEnabled: false });
  await context.addCookies([{ name: "tollgate_language", value: "en", url: gateway.base }]);
  await page.goto(`${gateway.base}/docs#E31`);
  await page.getByText("Messages", { exact: true }).first().click();
  await page.getByText("export ANTHROPIC_AUTH_TOKEN=").waitFor({ state: "hidden" });
  await page.getByText("Claude Code", { exact: true }).first().click();
  assert.ok(await page.getByText("export ANTHROPIC_AUTH_TOKEN=").isVisible(), "lines are chosen without a script");
  await context.close();
});

test("the references of both APIs can be read in every view, and lead to objects", async () => {
  for (const [view, options] of Object.entries(VIEWS)) {
    const { context, page, faults } = await openPage(browser, { ...options, locale: "en" });
    await page.goto(`${gateway.base}/docs/api`);
    await page.locator("#op-post_v1_chat_completions", { hasText: "x-tollgate-max-price" }).waitFor();
    await checkPage(page, faults, `docs/api, ${view}`);
    await screenshot(page, `docs-api.${view}`);
    await context.close();
    await asOwner(browser, gateway, options, async (admin, adminFaults) => {
      await admin.goto(`${gateway.base}/docs/admin-api`);
      await admin.locator("#op-make_key a[href='#schema-NewKey']").click();
      await admin.locator("#schema-NewKey", { hasText: "price_limit" }).waitFor();
      const overflow = await admin.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(overflow <= 0, `docs/admin-api, ${view}, is ${overflow} px too wide`);
      // Checking all of its some 200 operations and objects would take minutes: two of each group are left.
      await admin.evaluate(() => {
        for (const group of document.querySelectorAll("section.stack")) {
          for (const article of [...group.querySelectorAll("article")].slice(2)) article.remove();
        }
      });
      await checkPage(admin, adminFaults, `docs/admin-api, ${view}`);
      await screenshot(admin, `docs-admin-api.${view}`);
    });
  }
});

test("channels are filtered, and the form keeps what a spent budget does", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/channels/new`);
    await page.getByRole("radio", { name: "OpenAI-compatible" }).check();
    await page.getByLabel("Name", { exact: true }).fill("spare");
    await page.getByLabel("Base URL").fill(`http://${gateway.provider}/v1`);
    await page.getByLabel("It may reach private addresses").check();
    await page.locator("main button.primary").click();
    await page.waitForURL("**/channels/spare/models");
    await page.goto(`${gateway.base}/channels/spare/edit`);
    await page.getByLabel("Certificates of the upstream").fill("/no/such/file.pem");
    await page.getByRole("textbox", { name: "total alerts when it is spent" }).fill("5");
    await page.locator("#budget_day_block").fill("2.5");
    await page.getByRole("button", { name: "Save" }).click();
    if (page.url().endsWith("/edit")) {
      await page.locator("#ca_file[aria-invalid]").waitFor();
      await checkPage(page, faults, "channel, refused");
      await page.getByLabel("Certificates of the upstream").fill("");
      await page.getByRole("button", { name: "Save" }).click();
    }
    await page.waitForURL("**/channels/spare");
    await page.goto(`${gateway.base}/channels/spare/edit`);
    assert.equal(await page.locator("#budget_total_alert").inputValue(), "5.00");
    assert.equal(await page.locator("#budget_day_block").inputValue(), "2.50");
    await page.goto(`${gateway.base}/channels`);
    const all = await page.locator("tbody tr").count();
    await page.getByRole("combobox", { name: "Model" }).selectOption("acme-large");
    await page.waitForURL(/model=acme-large/);
    assert.ok(await page.locator("tbody tr").count() < all, "fewer channels");
    await page.getByRole("combobox", { name: "State" }).selectOption("off");
    await page.waitForURL(/state=off/);
    await page.getByText("Clear filters").first().waitFor();
    await checkPage(page, faults, "channels, filtered");
  });
  await asOwner(browser, gateway, VIEWS.phone, async (page, faults) => {
    await page.goto(`${gateway.base}/channels?state=usable`);
    await checkPage(page, faults, "channels, filtered, phone");
    await screenshot(page, "channels-filtered.phone");
  });
});

test("the facts of a model and the parameters that it takes are changed", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/channels/spare/models`);
    await page.locator("#model").fill("spare-model");
    await page.locator("form:has(#model) button[type=submit]").click();
    await page.waitForFunction(() => document.body.textContent.includes("spare-model"));
    await page.goto(`${gateway.base}/pricing/model/facts?model=spare-model`);
    await page.getByLabel("Description").fill("A spare one.");
    await page.getByLabel("Accepted").selectOption("except");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Enter names of parameters, one a line.").waitFor();
    await checkPage(page, faults, "facts, refused");
    await page.locator("#parameters").fill("seed\nlogit_bias");
    await page.getByLabel("Others are").selectOption("drop");
    await page.getByRole("button", { name: "Save" }).click();
    await page.waitForURL("**/pricing/model?model=spare-model");
    await page.getByRole("link", { name: "Facts and parameters" }).click();
    assert.equal(await page.locator("#parameters").inputValue(), "seed\nlogit_bias");
    assert.equal(await page.getByLabel("Others are").inputValue(), "drop");
    await checkPage(page, faults, "facts");
    await screenshot(page, "facts.light");
  });
});

test("the usage log is filtered by more than the outcome", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/log`);
    for (const [word, parameter] of [["empty", "empty=true"], ["failed_over", "failed_over=true"], ["blocked", "reason=E67"]]) {
      await page.getByLabel("Outcome", { exact: true }).selectOption(word);
      await page.waitForURL(new RegExp(`outcome=${word}`));
      await page.locator(`[data-export][href*="${parameter}"]`).waitFor();
      await page.getByText("Clear filters").first().waitFor();
    }
    await page.goto(`${gateway.base}/log?session=s1&stream=true`);
    await page.locator('[data-export][href*="tags=session%3Ds1"][href*="stream=true"]').waitFor();
    await checkPage(page, faults, "log, filtered");
  });
});
