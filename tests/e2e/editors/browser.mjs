// A browser with one VS Code in it. Each line of input is [verb, ...arguments], each line of output
// { value } or { error }. The first argument of the program is the folder of playwright-core, the
// second the browser.

import { createRequire } from "node:module";
import path from "node:path";
import readline from "node:readline";

const [, , folder, executablePath] = process.argv;
const { chromium } = createRequire(path.join(folder, "package.json"))("playwright-core");

const browser = await chromium.launch({
  executablePath,
  headless: true,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
const page = await browser.newPage({ viewport: { width: 1100, height: 650 } });

/** What VS Code writes for a space. */
const plain = (text) => text.replace(/\u00a0/g, " ");

const verbs = {
  async open(url) {
    await page.goto(url, { waitUntil: "domcontentloaded" });
    await page.waitForSelector(".editor-instance .view-lines", { timeout: 120_000 });
    await page.click(".editor-instance .view-lines");
  },
  press: (key) => page.keyboard.press(key),
  type: (text, delay) => page.keyboard.type(text, { delay }),
  async screenshot(file) {
    await page.screenshot({ path: file });
  },
  click: (selector) => page.click(selector),
  click_text: (selector, text) =>
    page.locator(selector).filter({ hasText: new RegExp(`^\\s*${text}\\s*$`) }).click(),
  /** The lines on the screen and the grey text, looked at in one moment. */
  async seen() {
    const { ghost, lines } = await page.evaluate(() => {
      const all = (selector) => [...document.querySelectorAll(`.editor-instance ${selector}`)];
      const top = (element) => Math.round(element.getBoundingClientRect().top);
      const inOrder = (elements) => elements.sort((one, other) => top(one) - top(other));
      const grey = '[class*="ghost-text"]';
      const pieces = all(grey).filter((element) => element.querySelector(grey) === null);
      const rows = new Map();
      for (const piece of inOrder(pieces)) {
        rows.set(top(piece), (rows.get(top(piece)) ?? "") + piece.textContent);
      }
      return {
        ghost: [...rows.values()].join("\n"),
        lines: inOrder(all(".view-lines .view-line")).map((line) => line.textContent),
      };
    });
    return { ghost: plain(ghost), lines: lines.map(plain) };
  },
  /** The texts of all elements that match. */
  async texts(selector) {
    return (await page.locator(selector).allTextContents()).map(plain);
  },
  /** The labels that a screen reader is given for all elements that match. */
  labels: (selector) =>
    page.$$eval(selector, (elements) => elements.map((one) => one.getAttribute("aria-label"))),
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [verb, ...given] = JSON.parse(line);
  try {
    const value = (await verbs[verb](...given)) ?? null;
    console.log(JSON.stringify({ value }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
}
await browser.close();
