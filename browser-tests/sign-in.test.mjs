// How people come in by the links of invites and of new passwords, and with one-time and recovery codes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { VIEWS, checkPage, screenshot } from "./browser.mjs";
import { codeOf } from "./one-time-codes.mjs";
import { PASSWORD, asOwner } from "./owner.mjs";
import { browser, gateway, useGateway } from "./suite.mjs";
import { sendPassword, signOut, visit } from "./visitors.mjs";

useGateway();

const INVALID_LINK = "The link is not valid: it was used, replaced, or is too old. Ask for a new one.";
const OTHER_PASSWORD = "nine green bottles";

const isRefused = (page) => page.getByText("The name or the password is wrong.").waitFor();

async function sendCode(page, code) {
  await page.locator("#code").fill(code);
  await page.locator("main button.primary").click();
}

async function choosePassword(page, password) {
  await page.locator("#new_password").fill(password);
  await page.locator("#new_password_again").fill(password);
  await page.locator("main button.primary").click();
}

// Makes an invite by the page, and returns the link that it shows.
async function invite(note) {
  let link;
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/members/invites`);
    await page.locator("#note").fill(note);
    await page.getByRole("button", { name: "Invite", exact: true }).click();
    await page.getByText("The invite is ready").waitFor();
    link = await page.locator("code.input").textContent();
  });
  assert.ok(link.startsWith(`${gateway.base}/invite?token=`), link);
  return link;
}

test("the link of an invite makes a member once", async () => {
  const link = await invite("Lin Wei");
  await visit(async (page, faults) => visit(async (second) => {
    // Two browsers have the form; the one that sends it first gets the account.
    for (const open of [page, second]) {
      await open.goto(link);
      await open.getByRole("heading", { name: "You are invited" }).waitFor();
    }
    await page.locator("#name").fill("lin");
    await screenshot(page, "invite.light");
    await choosePassword(page, PASSWORD);
    await page.waitForURL("**/console");
    await page.locator(".side .who").getByText("Member", { exact: true }).waitFor();
    assert.equal(await page.getByRole("link", { name: "Channels", exact: true }).count(), 0, "a member sees no channels");
    assert.equal((await page.goto(`${gateway.base}/channels`)).status(), 404);
    await page.getByText("There is no such page, or it is not yours.").waitFor();

    await second.locator("#name").fill("second");
    await choosePassword(second, PASSWORD);
    await second.getByText(INVALID_LINK).waitFor();
  }));
  await visit(async (page, faults) => {
    assert.equal((await page.goto(link)).status(), 400);
    await page.getByText(INVALID_LINK).waitFor();
    await checkPage(page, faults, "invite, used");
    await screenshot(page, "invite-used.light");
  });
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/members/invites`);
    const row = page.locator("tr", { hasText: "Lin Wei" });
    await row.getByText("Accepted").waitFor();
    await row.getByRole("link", { name: "lin", exact: true }).waitFor();
    await page.goto(`${gateway.base}/members?search=second`);
    await page.getByText("No member matches.").waitFor();
  });
});

test("a link for a new password replaces the old one, and works once", async () => {
  let link;
  await asOwner(browser, gateway, VIEWS.light, async (page) => {
    await page.goto(`${gateway.base}/members?search=lin`);
    await page.getByRole("link", { name: "lin", exact: true }).click();
    await page.locator("#link_password").fill("not the password");
    await page.getByRole("button", { name: "Link for a new password" }).click();
    await page.getByText("That is not your current password.").waitFor();
    await page.locator("#link_password").fill(PASSWORD);
    await page.getByRole("button", { name: "Link for a new password" }).click();
    await page.getByText("The link is ready").waitFor();
    link = await page.locator("code.input").textContent();
  });
  await visit(async (before) => {
    await sendPassword(before, "lin", PASSWORD);
    await before.waitForURL("**/console");
    await visit(async (page) => {
      await page.goto(link);
      await page.getByText("Choose a new password for lin.").waitFor();
      await screenshot(page, "reset-password.light");
      await choosePassword(page, OTHER_PASSWORD);
      await page.waitForURL("**/console");
    });
    await before.goto(`${gateway.base}/profile`);
    await before.waitForURL("**/sign-in?to=%2Fprofile");
  });
  await visit(async (page, faults) => {
    await sendPassword(page, "lin", PASSWORD);
    await isRefused(page);
    assert.equal((await page.goto(link)).status(), 400);
    await page.getByText(INVALID_LINK).waitFor();
    await sendPassword(page, "lin", OTHER_PASSWORD);
    await page.waitForURL("**/console");
  });
});

test("one-time codes are asked for after the password, and each code works once", async () => {
  const link = await invite("Mara");
  await visit(async (page, faults) => {
    await page.goto(link);
    await page.locator("#name").fill("mara");
    await choosePassword(page, PASSWORD);
    await page.waitForURL("**/console");
    await page.goto(`${gateway.base}/profile`);
    await page.getByRole("link", { name: "Switch on" }).click();
    const secret = (await page.locator("main pre").textContent()).replace(/\s/g, "");
    await screenshot(page, "codes-on.light");
    const recovery = async () => {
      await page.getByRole("heading", { name: "Recovery codes" }).waitFor();
      const codes = await page.locator("ul.codes li").allTextContents();
      assert.equal(new Set(codes).size, 10, codes.join());
      return codes;
    };
    const first = codeOf(secret);
    await page.locator("#code").fill(first);
    await page.locator("#password").fill(PASSWORD);
    await page.getByRole("button", { name: "Switch on" }).click();
    const replaced = await recovery();
    await checkPage(page, faults, "recovery codes");
    await screenshot(page, "codes-recovery.light");
    await page.getByRole("link", { name: "I have kept them" }).click();
    await page.getByText("10 recovery codes are left.").waitFor();
    await checkPage(page, faults, "profile with one-time codes");
    await screenshot(page, "codes-profile.light");

    const begin = async () => {
      await sendPassword(page, "mara", PASSWORD);
      await page.getByRole("heading", { name: "One-time code" }).waitFor();
    };
    const isWrong = async (code, why) => {
      await sendCode(page, code);
      await page.getByText("The code is wrong, was used before, or is too old.").waitFor();
      assert.equal(await page.locator("#code").getAttribute("aria-invalid"), "true", why);
    };
    const signInWith = async (code) => {
      await begin();
      await sendCode(page, code);
      await page.waitForURL("**/console");
      await signOut(page);
    };
    await signOut(page);
    await begin();
    await screenshot(page, "code.light");
    await isWrong(codeOf(secret, 10), "a code of another time");
    await checkPage(page, faults, "one-time code, wrong");
    await screenshot(page, "code-wrong.light");
    await isWrong(first, "the code that switched them on");
    await page.goto(`${gateway.base}/profile`);
    await page.waitForURL("**/sign-in?to=%2Fprofile");
    const next = codeOf(secret, 1);
    await signInWith(next);
    await begin();
    await isWrong(next, "the code of the last sign-in");
    await sendCode(page, replaced[0]);
    await page.waitForURL("**/console");
    await page.goto(`${gateway.base}/profile`);
    await page.getByText("9 recovery codes are left.").waitFor();

    await page.locator("#password_for_codes").fill("not the password");
    await page.getByRole("button", { name: "Replace recovery codes" }).click();
    await page.locator("#password_for_codes[aria-invalid=true]").waitFor();
    await page.locator("#password_for_codes").fill(PASSWORD);
    await page.getByRole("button", { name: "Replace recovery codes" }).click();
    const renewed = await recovery();
    assert.ok(renewed.every((code) => !replaced.includes(code)), "all of them are new");
    await signOut(page);
    await begin();
    await isWrong(replaced[1], "a code that was replaced");
    await signInWith(renewed[3].toUpperCase().replace("-", " "));
    await begin();
    await isWrong(renewed[3], "a recovery code that was used");
    await sendCode(page, renewed[4]);
    await page.waitForURL("**/console");

    await page.goto(`${gateway.base}/profile`);
    await page.getByText("8 recovery codes are left.").waitFor();
    await page.locator("#password_for_codes").fill(PASSWORD);
    await page.getByRole("button", { name: "Switch off" }).click();
    await page.getByText("One-time codes are off.").waitFor();
    await signOut(page);
    await sendPassword(page, "mara", PASSWORD);
    await page.waitForURL("**/console");
  });
});
