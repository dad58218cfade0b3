// acpx, a client of the Agent Client Protocol for the command line.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";

import { check, contains, equal, main, SERVER } from "./check_kit.mjs";

const ACPX = path.resolve("node_modules/acpx/dist/cli.js");
const HOME = mkdtempSync(path.join(tmpdir(), "acpx-"));
process.on("exit", () => rmSync(HOME, { recursive: true, force: true }));
const AGENT = [...JSON.parse(SERVER), "--journal", path.join(HOME, "runs/")].join(" ");

/** Run acpx, and return what it prints and its exit code. */
async function acpx(...words) {
  const child = spawn(process.execPath, [ACPX, "--agent", AGENT, ...words], {
    cwd: HOME,
    env: { ...process.env, HOME },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  for await (const piece of child.stdout) output += piece;
  const code = child.exitCode ?? (await new Promise((resolve) => child.on("exit", resolve)));
  return { output, code };
}

check("exec", "one prompt", async () => {
  const { output, code } = await acpx("--format", "quiet", "exec", "hello there");
  equal([output.trim(), code], ["You said: hello there", 0]);
});

check("exec", "approved write with its diff", async () => {
  const { output, code } = await acpx("--approve-all", "exec", "write it");
  contains(output, "diff");
  contains(output, "[done] end_turn");
  equal([existsSync(path.join(HOME, "notes.md")), code], [true, 0]);
  rmSync(path.join(HOME, "notes.md"));
});

check("exec", "denied write", async () => {
  const { output } = await acpx("--deny-all", "exec", "write it");
  contains(output, "(failed)");
  equal(existsSync(path.join(HOME, "notes.md")), false);
});

check("sessions", "a session over several processes", async () => {
  equal((await acpx("sessions", "new")).code, 0);
  contains((await acpx("--format", "quiet", "first of all")).output, "You said: first of all");
  contains((await acpx("--format", "quiet", "second of all")).output, "You said: second of all");
  contains((await acpx("sessions", "list")).output, "first of all");
  equal((await acpx("sessions", "close")).code, 0);
});

await main("acpx");
