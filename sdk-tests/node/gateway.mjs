// Starts the scripted provider and the gateway; both exit with the test process.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export const KEY = "sdk-tests-key-0123456789abcdef";
export const MODELS = ["chat-model", "native-model", "messages-model", "responses-model"];

async function firstLine(process) {
  for await (const line of createInterface({ input: process.stdout })) return line;
  throw new Error("the process exited without output");
}

export async function start() {
  const provider = spawn(process.env.PROVIDER, [], { stdio: ["ignore", "pipe", "inherit"] });
  const address = await firstLine(provider);
  const folder = mkdtempSync(join(tmpdir(), "tollgate-sdk-"));
  const catalog = join(folder, "catalog.toml");
  writeFileSync(catalog, readFileSync(process.env.CATALOG, "utf8").replaceAll("PROVIDER", address));
  const gateway = spawn(
    process.env.TOLLGATE,
    ["serve", "--json", "--listen", "127.0.0.1:0", "--catalog", catalog, "--data", join(folder, "data")],
    { stdio: ["ignore", "pipe", "ignore"], cwd: folder },
  );
  const startup = JSON.parse(await firstLine(gateway));
  return {
    base: `http://${startup.address}`,
    async stop() {
      const exited = new Promise((resolve) => gateway.once("exit", resolve));
      gateway.kill("SIGTERM");
      const code = await exited;
      provider.kill("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
      return code;
    },
  };
}
