// Lists: heads and scrollbar stay in view, and the strips, counts and sums beside them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, screenshot } from "./browser.mjs";
import { asOwner } from "./owner.mjs";
import { browser, chat, gateway, makeKey, useGateway } from "./suite.mjs";

useGateway();

test("the list of keys sums what the filter shows, and /status has a strip of a month", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    const key = await makeKey(page, "summed");
    await chat(key, { messages: [{ role: "user", content: "Hi" }] });
    for (let tries = 0; tries < 100; tries += 1) {
      await page.goto(`${gateway.base}/keys?search=summed`);
      if ((await page.locator("#sums").textContent()).includes("1 key: 1 request ")) break;
      await page.waitForTimeout(200);
    }
    assert.match(await page.locator("#sums").textContent(), /1 key: 1 request for \$\d/);
    await checkPage(page, faults, "keys, sums");
    await screenshot(page, "keys-sums.light");
    for (let tries = 0; tries < 100; tries += 1) {
      await page.goto(`${gateway.base}/status`);
      if (await page.locator("td.month .strip").count()) break;
      await page.waitForTimeout(200);
    }
    assert.equal(await page.locator("td.month").first().locator("rect").count(), 30);
    await checkPage(page, faults, "status");
    await page.goto(`${gateway.base}/models/acme-large`);
    assert.equal(await page.locator(".strip-week rect").count(), 7);
    await checkPage(page, faults, "model, week");
  });
});

test("the form of a channel is compared before it is saved", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/channels/new`);
    await page.locator("input[name=provider][value=compatible]").check({ force: true });
    await page.locator("#name").fill("compared");
    await page.locator("#base_url").fill("https://a.example/v1");
    await page.getByRole("button", { name: "Create channel" }).click();
    await page.waitForURL("**/channels/compared/models");
  });
  for (const [view, options] of Object.entries(VIEWS)) {
    for (const locale of ["en", "zh-CN"]) {
      await asOwner(browser, gateway, options, async (page, faults, context) => {
        await context.addCookies([{ name: "tollgate_language", value: locale, url: gateway.base }]);
        await page.goto(`${gateway.base}/channels/compared/edit`);
        await page.locator("#weight").fill("7");
        await page.locator("#tags").fill("eu, batch");
        await page.locator("#headers").fill("x-team: blue");
        await page.locator("button[formaction$='/edit/compare']").click();
        await page.locator("td[title=weight]").waitFor();
        assert.deepEqual(await page.locator("table.sum td:first-child").evaluateAll((cells) => cells.map((cell) => cell.title)), ["headers", "tags", "weight"]);
        assert.equal(await page.locator("#weight").inputValue(), "7");
        assert.ok(!(await page.locator("table.sum").textContent()).includes("blue"), "header values are secrets");
        await checkPage(page, faults, `channel, compared, ${view}, ${locale}`);
        await screenshot(page, `channel-compared.${view}${locale === "en" ? "" : ".zh"}`);
      });
    }
  }
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/channels/compared/edit`);
    assert.equal(await page.locator("#weight").inputValue(), "1", "nothing was saved");
    await page.locator("#tags").fill("eu");
    await page.getByRole("button", { name: "Save" }).click();
    await page.waitForURL("**/channels/compared");
    await page.goto(`${gateway.base}/groups/new`);
    await page.locator("#name").fill("europe");
    await page.getByRole("group", { name: "All channels with the tag" }).getByLabel("eu").check();
    await page.getByRole("button", { name: "Preview" }).click();
    await page.getByRole("group", { name: "Channels", exact: true }).getByLabel("compared").waitFor();
    assert.ok(await page.getByRole("group", { name: "Channels", exact: true }).getByLabel("compared").isChecked());
    await checkPage(page, faults, "group, by tag");
    await screenshot(page, "group-tags.light");
    await page.goto(`${gateway.base}/groups`);
    await page.getByRole("row", { name: /^default/ }).getByText("Default for new members").waitFor();
  });
});

test("a wide list keeps its heads and its scrollbar in the window", async () => {
  const narrow = { viewport: { width: 900, height: 700 }, colorScheme: "light" };
  await asOwner(browser, gateway, narrow, async (page, faults) => {
    for (const [name, path] of [["channels", "/channels"], ["members", "/members"], ["keys", "/keys"], ["groups", "/groups"]]) {
      await page.goto(gateway.base + path);
      const table = page.locator(".tw:has(> [data-table])");
      // More rows than the window takes.
      await table.locator("tbody").evaluate((body) => {
        while (body.rows.length < 40) body.append(body.rows[0].cloneNode(true));
      });
      const box = await table.boundingBox();
      assert.ok(box.y + box.height <= 700, `${name}: the scrollbar is at ${box.y + box.height}`);
      assert.ok(await table.evaluate((it) => it.scrollHeight > it.clientHeight), `${name} scrolls in itself`);
      assert.equal(await page.evaluate(() => document.documentElement.scrollHeight - innerHeight), 0, `${name}: the page does not scroll`);
      await table.evaluate((it) => it.scrollTo(120, 600));
      const head = await table.locator("thead th").first().boundingBox();
      assert.ok(Math.abs(head.y - box.y) <= 2 && Math.abs(head.x - box.x) <= 2, `${name}: the first head stays at ${head.x}, ${head.y}`);
      assert.deepEqual(faults, []);
      await page.screenshot({ path: `${process.env.SCREENSHOTS}/wide-${name}.light.png` });
    }
    // In a low window the page scrolls.
    await page.setViewportSize({ width: 900, height: 420 });
    await page.goto(`${gateway.base}/channels`);
    const table = await page.locator(".tw:has(> [data-table])").boundingBox();
    assert.ok(table.height > 100, `${table.height}`);
  });
});

test("a click on a row of keys, channels and members opens it beside the list", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page) => { await makeKey(page, "beside"); });
  for (const [view, options] of Object.entries(VIEWS)) {
    await asOwner(browser, gateway, options, async (page, faults) => {
      for (const path of ["/keys", "/channels", "/members"]) {
        const list = gateway.base + path;
        await page.goto(list);
        const link = page.locator("tbody [data-record]").first();
        const id = await link.getAttribute("data-record");
        const row = page.locator("tbody tr").first();
        const drawer = page.locator(`.drawer[data-open="${id}"]`);
        await row.locator("td.e").click();
        await drawer.waitFor();
        assert.equal(new URL(page.url()).searchParams.get("open"), id);
        await checkPage(page, faults, `${path}, a row beside it, ${view}`);
        await screenshot(page, `beside${path.replace("/", "-")}.${view}`);
        if (view === "phone") assert.equal((await drawer.boundingBox()).width, 390, "it takes the whole window");
        await page.keyboard.press("Escape");
        assert.equal(await drawer.count(), 0);
        assert.equal(page.url(), list);
        assert.ok(await page.evaluate(() => document.activeElement.matches("[data-record]")), "the focus returns to the row");
        // The address opens it, too; the button and going back close it.
        await page.goto(`${list}?open=${encodeURIComponent(id)}`);
        await drawer.waitFor();
        await drawer.getByRole("link", { name: "Close" }).click();
        assert.equal(await drawer.count(), 0);
        await row.locator("td.e").click();
        await drawer.waitFor();
        await page.goBack();
        await drawer.waitFor({ state: "detached" });
        assert.equal(page.url(), list);
        // What can be pressed does its own.
        await link.press("Enter");
        await page.waitForURL((url) => url.pathname.startsWith(new URL(`${list}/`).pathname));
        assert.equal(await page.locator(".drawer").count(), 0, "the link leads to the page");
      }
    });
  }
});

test("a new key is made beside the list of keys", async () => {
  for (const [view, options] of Object.entries(VIEWS)) {
    await asOwner(browser, gateway, options, async (page, faults) => {
      await page.goto(`${gateway.base}/keys`);
      const open = page.getByRole("link", { name: "New key" }).first();
      const drawer = page.locator('.drawer[data-open="new"]');
      await open.click();
      await drawer.locator("#name:focus").waitFor();
      assert.equal(new URL(page.url()).searchParams.get("open"), "new");
      await checkPage(page, faults, `new key beside the list, ${view}`);
      await screenshot(page, `beside-key-new.${view}`);
      await page.goBack();
      await drawer.waitFor({ state: "detached" });
      await open.click();
      await drawer.locator("#name").fill(`beside-${view}`);
      await page.locator("tbody tr td.e").first().dispatchEvent("click");
      assert.equal(await drawer.locator("#name").inputValue(), `beside-${view}`, "a click on a row closes no form");
      if (view === "light") {
        await drawer.getByText("More options").focus();
        await page.keyboard.press("?");
        await page.locator("dialog #shortcuts").waitFor();
        await page.keyboard.press("Escape");
        await page.locator("dialog").waitFor({ state: "detached" });
        assert.equal(await drawer.count(), 1, "Escape in a dialog closes the dialog alone");
        await drawer.getByText("More options").focus();
        await page.keyboard.press("Escape");
        await drawer.waitFor({ state: "detached" });
        await open.click();
        assert.equal(await drawer.locator("#name").inputValue(), `beside-${view}`, "what was typed is there again");
      }
      await drawer.getByText("More options").click();
      await drawer.locator("#rpm").fill("many");
      await page.keyboard.press("Enter");
      await drawer.getByText("Enter a whole number").waitFor();
      assert.equal(await drawer.locator("#name").inputValue(), `beside-${view}`);
      await checkPage(page, faults, `new key beside the list, refused, ${view}`);
      await drawer.locator("#rpm").fill("60");
      await drawer.locator(".foot button.primary").click();
      await page.getByText("The key is ready").waitFor();
      await page.waitForURL(/\/keys\/key_/);
    });
  }
  await asOwner(browser, gateway, { ...VIEWS.light, javaScriptEnabled: false }, async (page) => {
    await page.goto(`${gateway.base}/keys`);
    await page.getByRole("link", { name: "New key" }).first().click();
    await page.waitForURL("**/keys/new");
  });
});

test("brackets go through the rows beside a list", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    for (const name of ["first", "second"]) await makeKey(page, `step-${name}`);
    await page.goto(`${gateway.base}/keys?search=step-&sort=name`);
    const ids = await page.locator("tbody [data-record]").evaluateAll((links) => links.map((link) => link.dataset.record));
    assert.equal(ids.length, 2);
    await page.locator("tbody tr td.e").first().click();
    await page.locator(`.drawer[data-open="${ids[0]}"]`).waitFor();
    await page.keyboard.press("]");
    await page.locator(`.drawer[data-open="${ids[1]}"]`).waitFor();
    await page.keyboard.press("[");
    await page.locator(`.drawer[data-open="${ids[0]}"]`).waitFor();
    await page.locator("tbody tr").nth(1).getByRole("checkbox").check();
    assert.equal(await page.locator(`.drawer[data-open="${ids[0]}"]`).count(), 1, "ticking a row opens nothing");
    assert.deepEqual(faults, []);
  });
});
