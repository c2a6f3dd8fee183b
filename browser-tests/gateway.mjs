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
  let running;
  const serve = async (listen) => {
    running = spawn(
      process.env.TOLLGATE,
      ["serve", "--json", "--listen", listen, "--catalog", catalog, "--data", join(folder, "data")],
      { stdio: ["ignore", "pipe", "ignore"], cwd: folder, env: { ...process.env, ...environment } },
    );
    return JSON.parse(await firstLine(running));
  };
  const end = async (signal) => {
    if (running.exitCode !== null || running.signalCode !== null) return;
    const exited = new Promise((resolve) => running.once("exit", resolve));
    running.kill(signal);
    await exited;
  };
  const startup = await serve("127.0.0.1:0");
  return {
    base: `http://${startup.address}`,
    provider: address,
    setupLink: startup.setup_link,
    // Ends the gateway alone, and starts it again on the same address with the same data.
    end,
    startAgain: () => serve(startup.address),
    async stop() {
      await end("SIGTERM");
      provider.kill("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
