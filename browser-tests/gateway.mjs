// Starts the scripted provider and the gateway; both end with the tests.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

async function firstLine(process) {
  for await (const line of createInterface({ input: process.stdout })) return line;
  throw new Error("the process exited without output");
}

// Starts both, with further variables of the environment.
export async function start(environment = {}) {
  const provider = spawn(process.env.PROVIDER, [], { stdio: ["ignore", "pipe", "inherit"] });
  const address = await firstLine(provider);
  const folder = mkdtempSync(join(tmpdir(), "tollgate-browser-"));
  const catalog = join(folder, "catalog.toml");
  writeFileSync(catalog, readFileSync(process.env.CATALOG, "utf8").replaceAll("PROVIDER", address));
  const gateway = spawn(
    process.env.TOLLGATE,
    ["serve", "--json", "--listen", "127.0.0.1:0", "--catalog", catalog, "--data", join(folder, "data")],
    { stdio: ["ignore", "pipe", "ignore"], cwd: folder, env: { ...process.env, ...environment } },
  );
  const startup = JSON.parse(await firstLine(gateway));
  return {
    base: `http://${startup.address}`,
    provider: address,
    setupLink: startup.setup_link,
    async stop() {
      const exited = new Promise((resolve) => gateway.once("exit", resolve));
      gateway.kill("SIGTERM");
      await exited;
      provider.kill("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
