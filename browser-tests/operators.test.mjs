// The pages of operators and admins: groups, pricing, members, ledger, audit, alerts, settings and the system.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, screenshot } from "./browser.mjs";
import { PASSWORD, asOwner } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";

useGateway();

test("a group is previewed before it is made", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/groups/new`);
    await page.locator("#name:focus").waitFor();
    await page.keyboard.type("Studio");
    await page.getByLabel("chat", { exact: true }).check();
    await page.locator("#models").fill("nothing*");
    await page.getByText("0 models would be offered.").waitFor();
    await page.locator("#models").fill("acme*");
    await page.getByText("2 models would be offered.").waitFor();
    await page.locator("#sale_multiplier").fill("cheap");
    await page.getByText("A field has a value that cannot be used").waitFor();
    await page.locator("#sale_multiplier").fill("0.8");
    await page.getByText("2 models would be offered.").waitFor();
    await Promise.all([page.waitForResponse("**/groups/new/offers"), page.getByRole("button", { name: "Preview" }).click()]);
    await page.getByText("2 models would be offered.").waitFor();
    assert.equal(await page.locator("#name").inputValue(), "Studio");
    await checkPage(page, faults, "group, previewed");
    await screenshot(page, "group-preview.light");
    await page.locator("#sale_multiplier").fill("cheap");
    await page.getByRole("button", { name: "Create group" }).click();
    await page.getByText("Enter a factor such as 1 or 0.9.").waitFor();
    await checkPage(page, faults, "group, refused");
    await page.locator("#sale_multiplier").fill("0.8");
    await page.getByText("Limits and budget").click();
    await page.locator("#rpm").fill("600");
    await page.locator("#budget_month_block").fill("250");
    await page.getByRole("button", { name: "Create group" }).click();
    await page.getByRole("link", { name: "View as this group" }).click();
    await page.getByText("as callers of Studio see it").waitFor();
    await checkPage(page, faults, "group, model square");
    await screenshot(page, "group-square.light");
  });
});

test("a channel is edited as a file, and goes back to a version", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/channels/new`);
    await page.locator("input[name=provider][value=compatible]").check({ force: true });
    await page.locator("#name").fill("spare");
    await page.locator("#base_url").fill(`http://${gateway.provider}/v1`);
    await page.locator("#credential").fill("sk-0123456789abcdef");
    await page.locator("#private_network").check();
    await page.getByRole("button", { name: "Create channel" }).click();
    await page.waitForURL("**/channels/spare/models");
    await page.locator("#model").fill("zz-spare");
    await page.getByRole("button", { name: "Serve it" }).click();
    await page.goto(`${gateway.base}/channels/spare`);
    await page.getByRole("link", { name: "As file" }).click();
    const text = page.locator("textarea[name=file]");
    await text.fill((await text.inputValue()).replace("[[channel.account]]", "weight = 7\n\n[[channel.account]]").replace('name = "main"', 'nam = "main"'));
    await page.getByRole("button", { name: "Compare" }).click();
    await page.locator("textarea[aria-invalid=true]").waitFor();
    await checkPage(page, faults, "channel as file, refused");
    await screenshot(page, "channel-file-refused.light");
    await text.fill((await text.inputValue()).replace("nam =", "name ="));
    await page.getByRole("button", { name: "Compare" }).click();
    await page.locator("ins", { hasText: "weight = 7" }).waitFor();
    await checkPage(page, faults, "channel as file, compared");
    await screenshot(page, "channel-file-compared.light");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("Saved", { exact: true }).waitFor();
    await page.getByRole("link", { name: "Versions" }).click();
    await page.locator("summary", { hasText: "weight" }).click();
    await checkPage(page, faults, "versions of a channel");
    await screenshot(page, "channel-history-open.light");
    await page.getByRole("link", { name: "Compare and go back" }).first().click();
    await page.getByText("What going back would change").waitFor();
    await checkPage(page, faults, "version of a channel");
    await screenshot(page, "channel-version.light");
    await page.getByRole("button", { name: "Go back to this version" }).click();
    await page.getByText("Saved", { exact: true }).waitFor();
    await page.getByRole("link", { name: "As file" }).click();
    assert.ok(!(await page.locator("textarea[name=file]").inputValue()).includes("weight"));
    await page.goto(`${gateway.base}/channels?q=cdef`);
    await page.getByRole("link", { name: "spare" }).waitFor();
    assert.equal(await page.locator("main tbody tr").count(), 1);
  });
});

test("parameters and health of a channel are set in its form", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/channels/spare/edit`);
    const edits = page.locator("#parameter_edits");
    await edits.fill("drop seed\nforce messages []");
    await page.locator("#pausing_statuses").fill("402, 404");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("Edit 2: this parameter cannot be edited").waitFor();
    await page.getByText("Enter statuses of 401 to 599").waitFor();
    await checkPage(page, faults, "channel form, refused");
    await screenshot(page, "channel-form-refused.light");
    await edits.fill("drop seed\nclamp temperature 0 1\nforce reasoning_effort low");
    await page.locator("#pausing_statuses").fill("402, 529");
    await page.locator("#failures_to_cool").fill("2");
    await page.locator("#test_model").fill("zz-spare");
    await page.getByLabel("An answer without content is a failure").check();
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("Saved", { exact: true }).waitFor();
    await page.goto(`${gateway.base}/channels/spare/edit`);
    assert.equal(await edits.inputValue(), "drop seed\nclamp temperature 0 1\nforce reasoning_effort low");
    assert.equal(await page.locator("#pausing_statuses").inputValue(), "402, 529");
    await page.goto(`${gateway.base}/channels/spare/history`);
    await page.locator("summary", { hasText: "Edits of parameters" }).first().click();
    await page.getByText("drop seed; clamp temperature 0 1; force reasoning_effort low").first().waitFor();
    await checkPage(page, faults, "versions with edits of parameters");
  });
});

test("several channels are chosen and edited, tested and removed", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/channels/new`);
    await page.locator("input[name=provider][value=compatible]").check({ force: true });
    await page.locator("#name").fill("extra");
    await page.locator("#base_url").fill(`http://${gateway.provider}/v1`);
    await page.locator("#private_network").check();
    await page.getByRole("button", { name: "Create channel" }).click();
    await page.waitForURL("**/channels/extra/models");
    await page.goto(`${gateway.base}/channels`);
    assert.ok(!await page.locator("#selection").isVisible(), "actions are shown once a channel is chosen");
    const top = async () => (await page.getByRole("link", { name: "chat", exact: true }).boundingBox()).y;
    const before = await top();
    await page.getByLabel("Choose chat").check();
    await page.getByText("1 chosen").waitFor();
    assert.equal(await top(), before, "choosing the first row moves no row");
    await page.getByLabel("All rows").check();
    const count = await page.locator("[data-choice]").count();
    await page.getByText(`${count} chosen`).waitFor();
    await checkPage(page, faults, "channels, chosen");
    await screenshot(page, "channels-chosen.light");
    await page.getByRole("button", { name: "Run test" }).click();
    await page.getByText("End", { exact: true }).waitFor();
    await checkPage(page, faults, "test of several channels");
    await screenshot(page, "channels-tested.light");
    await page.getByRole("link", { name: "To the channels" }).click();
    // A channel of the served file cannot be changed, so no channel is.
    await page.getByLabel("All rows").check();
    await page.getByRole("button", { name: "Edit", exact: true }).click();
    await page.waitForURL("**/channel-selection/edit?**");
    await checkPage(page, faults, "edit several channels");
    await screenshot(page, "channels-edit.light");
    await page.locator("#weight").fill("5");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("Nothing was changed.").waitFor();
    assert.equal(await page.locator("#weight").inputValue(), "5");
    await checkPage(page, faults, "edit several channels, refused");
    await screenshot(page, "channels-refused.light");
    await page.goto(`${gateway.base}/channels`);
    await page.getByLabel("Choose extra").check();
    await page.getByRole("button", { name: "Edit", exact: true }).click();
    await page.locator("#weight").fill("5");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("Saved", { exact: true }).waitFor();
    await page.getByLabel("Choose extra").check();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export" }).click()]);
    assert.equal(download.suggestedFilename(), "channels.toml");
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByLabel("Type the name to confirm").fill("extra");
    await checkPage(page, faults, "remove several channels");
    await page.getByRole("button", { name: "Delete for good" }).click();
    await page.getByText("Deleted.").waitFor();
    assert.equal(await page.getByLabel("Choose extra").count(), 0);
  });
});

test("several models of a channel are tested, and those that worked are served", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/channels/new`);
    await page.locator("input[name=provider][value=compatible]").check({ force: true });
    await page.locator("#name").fill("tested");
    await page.locator("#base_url").fill(`http://${gateway.provider}/v1`);
    await page.locator("#credential").fill("a credential");
    await page.locator("#private_network").check();
    await page.getByRole("button", { name: "Create channel" }).click();
    await page.waitForURL("**/channels/tested/models");
    await page.getByLabel("Name for callers").fill("chat-model");
    await page.getByRole("button", { name: "Serve it" }).click();
    await page.goto(`${gateway.base}/channels/tested`);
    await page.getByRole("link", { name: "Test several models" }).click();
    await page.getByRole("button", { name: "Fetch from the provider" }).click();
    await page.getByLabel("All", { exact: true }).check();
    await page.getByText(/^\d+ chosen$/).waitFor();
    await checkPage(page, faults, "models to test");
    await screenshot(page, "test-models.light");
    await page.getByRole("button", { name: "Test the chosen" }).click();
    await page.locator("tr.end").waitFor();
    await checkPage(page, faults, "results of several models");
    await screenshot(page, "tested-models.light");
    await page.setViewportSize(VIEWS.phone.viewport);
    await checkPage(page, faults, "results of several models on a phone");
    await screenshot(page, "tested-models.phone");
    await page.setViewportSize(VIEWS.light.viewport);
    // A served model that is not used is no longer served, once that is saved.
    await page.locator("input[name=use][value=chat-model]").uncheck();
    await page.getByRole("button", { name: "Use these" }).click();
    await page.waitForURL("**/channels/tested/test/use");
    await page.locator("input[name=remove][value=chat-model]").waitFor();
    await checkPage(page, faults, "models that would be served");
    await screenshot(page, "use-models.light");
    // The results are still shown if the changes are not saved.
    const rows = await page.locator("input[name=result]").count();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.waitForURL("**/channels/tested/test/results");
    assert.equal(await page.locator("input[name=use]").count(), rows);
    assert.equal(await page.locator("input[name=use][value=chat-model]").isChecked(), false, "the checkbox has kept its state");
    await checkPage(page, faults, "results of several models, again");
    await screenshot(page, "tested-models-again.light");
    await page.getByRole("button", { name: "Use these" }).click();
    await page.waitForURL("**/channels/tested/test/use");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.waitForURL("**/channels/tested/models");
    assert.equal(await page.locator("input[name=shown][value=chat-model]").count(), 0);
    await page.goto(`${gateway.base}/channels`);
    await page.getByRole("row", { name: /tested/ }).getByText("just now").waitFor();
  });
});

test("proxies are set by lines and tested", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/proxies`);
    await checkPage(page, faults, "proxies, none");
    await page.locator("#lines").fill("local http://127.0.0.1:9\nlocal");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Line 2").waitFor();
    await checkPage(page, faults, "proxies, refused");
    await page.goto(`${gateway.base}/channels/new`);
    await page.locator("input[name=provider][value=compatible]").check({ force: true });
    await page.locator("#name").fill("behind");
    await page.locator("#base_url").fill(`http://${gateway.provider}/v1`);
    await page.locator("#credential").fill("sk-0123456789abcdef");
    await page.locator("#private_network").check();
    await page.getByRole("button", { name: "Create channel" }).click();
    await page.waitForURL("**/channels/behind/models");
    await page.goto(`${gateway.base}/proxies`);
    await page.locator("#lines").fill("behind http://me:password@127.0.0.1:9");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("http://me:***@127.0.0.1:9").waitFor();
    await checkPage(page, faults, "proxies");
    await screenshot(page, "proxies.light");
    await page.getByRole("button", { name: "Test all" }).click();
    await page.getByText("0 passed, 1 failed").waitFor();
    await checkPage(page, faults, "proxies, tested");
    await screenshot(page, "proxies-tested.light");
    await page.goto(`${gateway.base}/proxies`);
    await page.locator("#lines").fill("behind -");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("No channel uses a proxy.").waitFor();
  });
});

test("groups are compared by price, and their multipliers changed", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/pricing/groups`);
    await page.getByLabel("Studio").fill("cheap");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Enter a factor such as 1 or 0.9.").waitFor();
    await checkPage(page, faults, "prices by group, refused");
    await page.getByLabel("Studio").fill("0.5");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved", { exact: true }).waitFor();
    await page.getByRole("columnheader", { name: "Studio × 0.5" }).waitFor();
    assert.ok(await page.getByRole("row", { name: /acme-large/ }).getByText("$1.20 / $6.00").isVisible());
    await page.getByRole("link", { name: "Set multipliers acme-large" }).click();
    await page.getByText("Empty: × 0.5 of the group").waitFor();
    await page.getByLabel("Studio").fill("2");
    await checkPage(page, faults, "prices by group, one model");
    await screenshot(page, "pricing-factors.light");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved", { exact: true }).waitFor();
    const large = page.getByRole("row", { name: /acme-large/ });
    assert.ok(await large.getByText("$4.80 / $24.00").isVisible() && (await large.getByText("own", { exact: true }).isVisible()));
  });
});

test("e exports what the filter selects", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    for (const [path, file] of [["/audit?kind=group", "audit"], ["/log?range=24h", "usage"], ["/ledger?kind=top_up", "ledger"],
      ["/members?sort=name", "members"], ["/groups", "groups"], ["/channels?sort=name", "channels"], ["/pricing?state=priced", "prices"]]) {
      await page.goto(gateway.base + path);
      const [download] = await Promise.all([page.waitForEvent("download"), page.keyboard.press("e")]);
      assert.match(download.suggestedFilename(), new RegExp(`${file}.*\\.csv`));
    }
    await page.keyboard.press("?");
    await page.getByText("Export what the filter selects (CSV)").waitFor();
  });
});

test("a price is set, compared with a list, simulated and found in the history", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/pricing/unpriced`);
    await page.locator("tr", { hasText: "unpriced-model" }).getByRole("link", { name: "Set price" }).click();
    await page.locator("#input").fill("0.50");
    await page.locator("#output").fill("1.50");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Sells below cost").first().waitFor();
    await checkPage(page, faults, "price, below cost");
    await page.goto(`${gateway.base}/pricing/history?model=unpriced-model`);
    await page.getByText("Input $0.50").first().waitFor();
    await page.goto(`${gateway.base}/pricing/import`);
    await page.locator("#source").selectOption("csv");
    await page.locator("input[type=file]").setInputFiles({
      name: "list.csv", mimeType: "text/csv", buffer: Buffer.from("model,input,output\nacme-large,9,9\n"),
    });
    await page.waitForFunction(() => document.querySelector("#file").value.includes("acme-large"));
    await page.getByRole("button", { name: "Compare" }).click();
    await page.getByText("Difference to the catalog").waitFor();
    assert.ok(await page.locator("input[name=apply]").first().isDisabled(), "what the catalog file sets cannot be picked");
    await checkPage(page, faults, "import, compared");
    await screenshot(page, "pricing-import.light");
    await page.goto(`${gateway.base}/pricing/simulate`);
    await page.locator("#model").fill("acme-large");
    await page.locator("#group").selectOption("default");
    await page.locator("#input").fill("120000");
    await page.getByRole("button", { name: "Compute" }).click();
    await page.getByText("The caller pays").waitFor();
    await checkPage(page, faults, "simulator");
    await screenshot(page, "pricing-simulate.light");
  });
});

test("a member is made, gets money and an invite is written", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/members/new`);
    await page.locator("#name").fill("Ada Okafor");
    await page.locator("#role").selectOption("operator");
    await page.locator("#billing").selectOption("prepaid");
    await page.getByRole("button", { name: "Create member" }).click();
    await page.locator("#amount").fill("-1");
    await page.getByRole("button", { name: "Post", exact: true }).click();
    await page.getByText("A top-up is above 0.").waitFor();
    await checkPage(page, faults, "member, refused");
    await page.locator("#amount").fill("250");
    await page.locator("#note").fill("invoice 2026-118");
    await page.getByRole("button", { name: "Post", exact: true }).click();
    await page.getByText("Posted to the ledger").waitFor();
    assert.ok(await page.getByText("$250.00").first().isVisible());
    await page.locator("#link_password").fill(PASSWORD);
    await page.getByRole("button", { name: "Link for a new password" }).click();
    await page.getByText("The link is ready").waitFor();
    await checkPage(page, faults, "member, link");
    await page.goto(`${gateway.base}/members/invites`);
    await page.locator("#note").fill("Lin Wei");
    await page.getByRole("button", { name: "Invite", exact: true }).click();
    await page.getByText("The invite is ready").waitFor();
    await checkPage(page, faults, "invite, made");
  });
});

test("a destination is tested and a setting changed at run time", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/alerts/destinations/new`);
    await page.locator("#name").fill("on-call");
    await page.locator("#url").fill("http://127.0.0.1:9/hook");
    await page.getByLabel("It may reach private addresses").check();
    await page.getByRole("button", { name: "Create destination" }).click();
    await page.getByRole("button", { name: "Send a test" }).click();
    await page.getByText("The message was not delivered:").waitFor();
    await checkPage(page, faults, "destination, tested");
    await screenshot(page, "destination-tested.light");
    await page.goto(`${gateway.base}/alerts/destinations/new`);
    await page.locator("#name").fill("bot");
    await page.locator("#kind").selectOption("telegram");
    await page.locator("#url").fill(`http://${gateway.provider}/bot1:token`);
    await page.locator("#secret").fill("123456:token");
    await page.getByText("Mail and Telegram").click();
    await page.locator("#to").fill("-1001234567890");
    await page.getByLabel("It may reach private addresses").check();
    await page.getByRole("button", { name: "Create destination" }).click();
    await page.locator("#url[aria-invalid=true]").waitFor();
    await checkPage(page, faults, "destination, refused");
    await page.locator("#url").fill("http://127.0.0.1:9");
    await page.locator("#secret").fill("123456:token");
    await page.getByRole("button", { name: "Create destination" }).click();
    await page.getByRole("button", { name: "Send a test" }).waitFor();
    assert.equal(await page.locator("#to").inputValue(), "-1001234567890");
    await checkPage(page, faults, "destination of Telegram");
    await page.goto(`${gateway.base}/settings?q=slow_ms`);
    await page.getByRole("link", { name: "Change", exact: true }).click();
    await page.locator("#value").fill("many");
    await page.getByRole("button", { name: "Save" }).click();
    await page.locator("#value[aria-invalid=true]").waitFor();
    await checkPage(page, faults, "setting, refused");
    await page.locator("#value").fill("750");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Back to the default").waitFor();
    await page.goto(`${gateway.base}/settings/alerts.balance_usd`);
    await page.locator("#value").fill("1000");
    await page.getByRole("button", { name: "Save" }).click();
    await page.goto(`${gateway.base}/alerts?state=open`);
    const low = page.locator("td", { hasText: "Low balance" });
    for (let tries = 0; tries < 100 && await low.count() === 0; tries += 1) {
      await page.waitForTimeout(100);
      await page.reload();
    }
    assert.ok(await low.count() > 0);
  });
});

test("jobs are followed to their result, by keyboard", async () => {
  await asOwner(browser, gateway, VIEWS.light, async (page, faults) => {
    await page.goto(`${gateway.base}/system`);
    await page.getByRole("button", { name: "Start: Doctor" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Result" }).waitFor();
    await checkPage(page, faults, "job, doctor");
    await screenshot(page, "job-doctor.light");
    for (const name of ["Verify", "Backup"]) {
      await page.goto(`${gateway.base}/system`);
      await page.getByRole("button", { name: `Start: ${name}` }).click();
      await page.getByRole("heading", { name: "Result" }).waitFor();
    }
  });
});

for (const [view, options] of Object.entries(VIEWS)) {
  for (const locale of ["en", "zh-CN"]) {
    test(`pages of operators: ${view}, ${locale}`, async () => {
      await asOwner(browser, gateway, options, async (page, faults, context) => {
        await context.addCookies([{ name: "tollgate_language", value: locale, url: gateway.base }]);
        const href = async (path, text) => {
          await page.goto(gateway.base + path);
          return new URL(await page.getByRole("link", { name: text, exact: true }).first().getAttribute("href"), gateway.base).pathname;
        };
        const [group, member] = [await href("/groups", "Studio"), await href("/members", "Ada Okafor")];
        const version = (await href("/channels/spare/history", locale === "en" ? "Compare and go back" : "对比并恢复")).split("/").pop();
        const destination = await href("/alerts/destinations", "on-call");
        await page.goto(`${gateway.base}/channels`);
        const chosen = `channel=${await page.locator("[data-choice]").first().getAttribute("value")}`;
        for (const [name, path] of [
          ["groups", "/groups"],
          ["group", group],
          ["group-new", "/groups/new"],
          ["pricing", "/pricing"],
          ["pricing-group", "/pricing?group=default"],
          ["pricing-groups", "/pricing/groups"],
          ["channels-edit", `/channel-selection/edit?${chosen}`],
          ["channel-edit", "/channels/spare/edit"],
          ["channels-remove", `/channel-selection/remove?${chosen}`],
          ["proxies", "/proxies"],
          ["channel-file", "/channels/spare/file"],
          ["channel-file-fixed", "/channels/chat/file"],
          ["channel-history", "/channels/spare/history"],
          ["channel-version", `/channels/spare/history/${version}`],
          ["pricing-model", "/pricing/model?model=acme-large"],
          ["pricing-unpriced", "/pricing/unpriced"],
          ["pricing-import", "/pricing/import"],
          ["pricing-simulate", "/pricing/simulate?model=acme-large&group=default&input=120000&output=4000&cache_read=20000"],
          ["pricing-history", "/pricing/history?model=unpriced-model"],
          ["members", "/members"],
          ["members-search", "/members?search=oka"],
          ["members-sorted", "/members?role=member&status=active&sort=last_used"],
          ["member", member],
          ["member-new", "/members/new"],
          ["invites", "/members/invites"],
          ["admin-keys", "/members/admin-keys"],
          ["ledger", "/ledger"],
          ["ledger-period", "/ledger?range=7d&kind=top_up"],
          ["audit", "/audit"],
          ["alerts", "/alerts"],
          ["alert-rules", "/alerts/rules"],
          ["destinations", "/alerts/destinations"],
          ["destination", destination],
          ["settings", "/settings?q=usage"],
          ["setting", "/settings/log.slow_ms"],
          ["setting-fixed", "/settings/server.listen"],
          ["system", "/system"],
          ["system-replay", "/system/replay"],
          ["system-import", "/system/import"],
        ]) {
          await page.goto(gateway.base + path);
          assert.equal(await page.locator("html").getAttribute("lang"), locale);
          await checkPage(page, faults, `${name}, ${view}, ${locale}`);
          await screenshot(page, `${name}.${view}${locale === "en" ? "" : ".zh"}`);
        }
      });
    });
  }
}

test("forms of operators work without JavaScript", async () => {
  await asOwner(browser, gateway, { ...VIEWS.light, javaScriptEnabled: false }, async (page) => {
    await page.goto(`${gateway.base}/groups`);
    await page.getByRole("link", { name: "Studio" }).click();
    await page.getByRole("button", { name: "Preview" }).click();
    await page.getByText("2 models would be offered.").waitFor();
    await page.locator("#description").fill("For the studio");
    await page.getByText("Limits and budget").click();
    await page.getByRole("textbox", { name: "per UTC day alerts when it is spent" }).fill("much");
    await page.getByRole("button", { name: "Save" }).click();
    await page.locator("#budget_day_alert[aria-invalid]").waitFor();
    assert.equal(await page.locator("#budget_month_block").inputValue(), "250.00");
    await page.locator("#budget_day_alert").fill("40");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved", { exact: true }).waitFor();
    assert.equal(await page.locator("#budget_day_alert").inputValue(), "40.00");
    await page.goto(`${gateway.base}/groups`);
    await page.getByText("For the studio").waitFor();
    await page.goto(`${gateway.base}/ledger`);
    await page.getByRole("link", { name: "7 days" }).first().click();
    await page.waitForURL("**/ledger?range=7d");
    await page.locator("select[name=kind]").selectOption("top_up");
    await page.getByRole("button", { name: "Filter" }).click();
    await page.waitForURL(/kind=top_up.*range=7d/);
    await page.goto(`${gateway.base}/members`);
    await page.locator("#role").selectOption("operator");
    await page.getByRole("button", { name: "Filter" }).click();
    await page.waitForURL(/role=operator/);
    await page.getByRole("link", { name: "Last request" }).click();
    await page.waitForURL(/role=operator.*sort=last_used/);
    await page.goto(`${gateway.base}/system`);
    await page.getByRole("button", { name: "Start: Doctor" }).click();
    for (let tries = 0; tries < 100 && await page.getByRole("heading", { name: "Result" }).count() === 0; tries += 1) {
      await page.waitForTimeout(100);
      await page.reload();
    }
    await page.getByRole("heading", { name: "Result" }).waitFor();
  });
});
