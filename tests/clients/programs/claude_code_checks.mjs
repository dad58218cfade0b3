// Claude Code, in its mode for scripts (`claude -p`), with the server as its only host.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";

import {
  check, contains, endingOf, equal, get, KEY, main, newestRun, PIXEL, SERVER,
} from "./check_kit.mjs";

const PROGRAM = path.resolve("node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs");
const HOME = mkdtempSync(path.join(tmpdir(), "claude-code-"));
process.on("exit", () => rmSync(HOME, { recursive: true, force: true }));
const otherHosts = [];
// Requests to other hosts would go through this proxy.
const refuse = (request, answer) => {
  otherHosts.push(request.url);
  answer.end("HTTP/1.1 502 Bad Gateway\r\n\r\n");
};
const proxy = createServer(refuse).on("connect", refuse);
await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
const ENVIRON = {
  PATH: process.env.PATH,
  HOME,
  HTTPS_PROXY: `http://127.0.0.1:${proxy.address().port}`,
  NO_PROXY: "127.0.0.1",
  ANTHROPIC_BASE_URL: SERVER,
  ANTHROPIC_DEFAULT_HAIKU_MODEL: "report",
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  CLAUDE_CODE_MAX_RETRIES: "0",
  DISABLE_AUTOUPDATER: "1",
  DISABLE_ERROR_REPORTING: "1",
  DISABLE_TELEMETRY: "1",
};

/** Start Claude Code with a prompt. */
function start(prompt, { model = "report", options = [], auth = { ANTHROPIC_API_KEY: KEY } } = {}) {
  const words = [PROGRAM, "-p", prompt, "--model", model, "--output-format", ...options];
  return spawn(process.execPath, words, {
    cwd: HOME,
    env: { ...ENVIRON, ...auth },
    // A group of its own, which a signal reaches as Ctrl-C in a terminal does.
    detached: true,
    stdio: ["ignore", "pipe", "ignore"],
  });
}

async function outputOf(child) {
  let output = "";
  for await (const piece of child.stdout) output += piece;
  return output;
}

/** Run a prompt to its end, and return the result that Claude Code prints. */
async function run(prompt, { options = [], ...more } = {}) {
  return JSON.parse(await outputOf(start(prompt, { options: ["json", ...options], ...more })));
}

const bash = (command) => `{"command": ${JSON.stringify(command)}}`;

check("plain", "a prompt, and instructions", async () => {
  const answer = await run("hello");
  equal([answer.subtype, answer.is_error], ["success", false]);
  contains(answer.result, "hello");
  const report = await run("report", { options: ["--append-system-prompt", "Be brief."] });
  contains(JSON.parse(report.result).instructions, "Be brief.");
});

check("plain", "no other host is asked", async () => {
  await run("hello");
  equal(otherHosts, []);
});

check("stream", "partial messages", async () => {
  const options = ["stream-json", "--verbose", "--include-partial-messages"];
  const lines = (await outputOf(start("one two three", { options }))).trim().split("\n");
  const events = lines.map((it) => JSON.parse(it)).filter((it) => it.type === "stream_event");
  const kinds = events.map((it) => it.event.type);
  equal([kinds[0], kinds.at(-1)], ["message_start", "message_stop"]);
  if (kinds.filter((it) => it === "content_block_delta").length < 2) throw new Error(kinds.join());
});

check("usage", "of the result", async () => {
  const { usage } = await run("hello");
  equal(usage.input_tokens, 10);
  if (usage.output_tokens < 1) throw new Error(JSON.stringify(usage));
});

check("tools", "its own tool runs a command", async () => {
  const options = ["--allowedTools", "Bash"];
  const answer = await run(`call Bash ${bash("echo foggy")}`, { options });
  equal(answer.result, "The tools say: foggy.");
});

check("tools", "a refused call is told to the model", async () => {
  const answer = await run(`call Bash ${bash("touch made")}`, { options: ["--permission-mode", "default"] });
  equal(answer.permission_denials.map((it) => it.tool_name), ["Bash"]);
  contains(answer.result, "The tools say: ");
});

check("parallel calls", "two calls in one answer", async () => {
  const options = ["--allowedTools", "Bash"];
  const answer = await run(`call Bash twice ${bash("echo foggy")}`, { options });
  equal(answer.result, "The tools say: foggy, foggy.");
});

check("streamed calls", "a call comes in events", async () => {
  const options = ["stream-json", "--verbose", "--include-partial-messages", "--allowedTools", "Bash"];
  const output = await outputOf(start(`call Bash ${bash("echo foggy")}`, { options }));
  contains(output, "input_json_delta");
  contains(output, "The tools say: foggy.");
});

check("structured output", "a JSON schema", async () => {
  const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const options = ["--json-schema", JSON.stringify(schema)];
  const answer = await run("call StructuredOutput", { options });
  equal(answer.structured_output, { city: "Lima" });
});

check("images and files", "an image that its tool reads", async () => {
  const file = path.join(HOME, "a.png");
  writeFileSync(file, Buffer.from(PIXEL, "base64"));
  const options = ["--allowedTools", "Read"];
  const prompt = `call Read {"file_path": ${JSON.stringify(file)}}`;
  const first = await run(prompt, { options });
  const report = await run("report", { options: ["--resume", first.session_id] });
  const parts = JSON.parse(report.result).messages.flatMap((it) => it.parts);
  contains(parts.map((it) => it.type), "image/png");
});

check("several turns", "a session is resumed", async () => {
  const first = await run("I am Ann.");
  const second = await run("report", { options: ["--resume", first.session_id] });
  const { messages } = JSON.parse(second.result);
  equal(messages.map((it) => it.role), ["user", "assistant", "user"]);
  contains(messages[0].text, "I am Ann.");
});

check("count_tokens", "`/context` counts", async () => {
  const counted = async () =>
    (await get("/metrics")).match(/requests_total\{.*count_tokens.*200"\} (\d+)/)?.[1] ?? "0";
  const before = await counted();
  contains((await run("/context")).result, "Tokens:");
  if (Number(await counted()) <= Number(before)) throw new Error("no tokens were counted");
});

check("auth headers", "key and bearer token", async () => {
  for (const name of ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
    equal((await run("hello", { auth: { [name]: KEY } })).is_error, false);
});

check("errors", "each failure has its status", async () => {
  for (const [model, status] of [["limited", 429], ["nobody", 404], ["broken", 503]]) {
    const answer = await run("hello", { model });
    equal([answer.is_error, answer.api_error_status], [true, status]);
  }
  const stranger = await run("hello", { auth: { ANTHROPIC_API_KEY: "of-nobody" } });
  equal([stranger.is_error, stranger.api_error_status], [true, 401]);
});

check("cancel", "an interrupt cancels the run", async () => {
  const options = ["stream-json", "--verbose", "--include-partial-messages"];
  const child = start("go", { model: "endless", options });
  let output = "";
  for await (const piece of child.stdout) {
    output += piece;
    if (output.includes("text_delta")) break;
  }
  const run = await newestRun();
  process.kill(-child.pid, "SIGINT");
  equal(await endingOf(run), "cancelled");
});

await main("@anthropic-ai/claude-code");
