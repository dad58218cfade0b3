// The official SDK of the Agent Client Protocol as an editor: each message is checked by its schema.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import { Readable, Writable } from "node:stream";

import { check, contains, equal, load, main, SERVER } from "./check_kit.mjs";

const stable = await load("@agentclientprotocol/sdk");
const unstable = await load("@agentclientprotocol/sdk/unstable");
const HOME = mkdtempSync(path.join(tmpdir(), "acp-sdk-"));
process.on("exit", () => rmSync(HOME, { recursive: true, force: true }));
// The command that serves the team, as JSON: the program and its arguments.
const [PROGRAM, ...WORDS] = JSON.parse(SERVER);
let count = 0;

/** Talk to a new process of the team; `talk` gets the agent and all that it has sent. */
async function withAgent(talk, { sdk = stable, capabilities = {}, option = "once", home } = {}) {
  const folder = home ?? path.join(HOME, `${++count}`);
  const child = spawn(PROGRAM, [...WORDS, "--journal", path.join(folder, "runs/")], {
    cwd: HOME,
    env: { ...process.env, HOME: folder },
    stdio: ["pipe", "pipe", "ignore"],
  });
  const ended = new Promise((resolve) => child.on("exit", resolve));
  const seen = { updates: [], questions: [], wake: () => {} };
  const app = sdk
    .client({ name: "checks" })
    .onRequest(sdk.methods.client.session.requestPermission, ({ params }) => {
      seen.questions.push(params);
      return { outcome: { outcome: "selected", optionId: option } };
    })
    .onNotification(sdk.methods.client.session.update, ({ params }) => {
      seen.updates.push(params);
      seen.wake();
    });
  const stream = sdk.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  let result;
  try {
    result = await app.connectWith(stream, async (agent) => {
      const begun = await agent.request(sdk.methods.agent.initialize, {
        protocolVersion: sdk.PROTOCOL_VERSION,
        clientCapabilities: capabilities,
      });
      return await talk(agent, seen, begun, child);
    });
  } finally {
    child.stdin.end();
  }
  return { result, code: await ended, folder };
}

const text = (words) => [{ type: "text", text: words }];
const newSession = (agent) =>
  agent.request("session/new", { cwd: HOME, mcpServers: [] });
const prompt = (agent, sessionId, words) =>
  agent.request("session/prompt", { sessionId, prompt: text(words) });
const kinds = (seen) => seen.updates.map((it) => it.update.sessionUpdate);
const said = (seen) =>
  seen.updates
    .filter((it) => it.update.sessionUpdate === "agent_message_chunk")
    .map((it) => it.update.content.text)
    .join("");

/** Wait until something holds of the messages of the agent. */
async function until(seen, holds) {
  while (!holds()) await new Promise((resolve) => (seen.wake = resolve));
}

check("initialize", "version, capabilities and the end of stdin", async () => {
  const { result, code } = await withAgent(async (_, __, begun) => begun);
  equal(result.protocolVersion, 1);
  equal(result.agentCapabilities.loadSession, true);
  equal(code, 0);
});

check("prompt", "streamed text", async () => {
  await withAgent(async (agent, seen) => {
    const { sessionId } = await newSession(agent);
    equal((await prompt(agent, sessionId, "hello there")).stopReason, "end_turn");
    equal(said(seen), "You said: hello there");
  });
});

check("tools", "tasks, plan, diff and approval", async () => {
  await withAgent(async (agent, seen) => {
    const { sessionId } = await newSession(agent);
    await prompt(agent, sessionId, "write it");
    contains(kinds(seen), "plan");
    const calls = seen.updates.map((it) => it.update).filter((it) => it.sessionUpdate === "tool_call");
    equal(calls.map((it) => it.kind), ["think", "edit"]);
    equal(calls[1].content[0].newText, "# Notes\n42\n");
    equal(seen.questions.length, 1);
    equal(existsSync(path.join(HOME, "notes.md")), true);
    rmSync(path.join(HOME, "notes.md"));
  });
});

check("tools", "denied approval", async () => {
  await withAgent(
    async (agent, seen) => {
      const { sessionId } = await newSession(agent);
      await prompt(agent, sessionId, "write it");
      contains(seen.updates.map((it) => it.update.status ?? ""), "failed");
      equal(existsSync(path.join(HOME, "notes.md")), false);
    },
    { option: "deny" },
  );
});

check("cancel", "session/cancel", async () => {
  await withAgent(async (agent, seen) => {
    const { sessionId } = await newSession(agent);
    const ends = prompt(agent, sessionId, "wait here");
    await until(seen, () => seen.updates.some((it) => it.update.name === "wait_for_ever"));
    await agent.notify("session/cancel", { sessionId });
    equal((await ends).stopReason, "cancelled");
  });
});

check("later", "result of a background task between prompts", async () => {
  await withAgent(async (agent, seen) => {
    const { sessionId } = await newSession(agent);
    equal((await prompt(agent, sessionId, "later please")).stopReason, "end_turn");
    await until(seen, () => said(seen).includes("The answer is there: 42."));
  });
});

check("sessions", "list, load after kill, close, delete", async () => {
  let sessionId;
  const killed = await withAgent(async (agent, _, __, child) => {
    ({ sessionId } = await newSession(agent));
    await prompt(agent, sessionId, "remember this");
    child.kill("SIGKILL");
  });
  await withAgent(
    async (agent, seen) => {
      const { sessions } = await agent.request("session/list", {});
      equal(sessions.map((it) => it.title), ["remember this"]);
      await agent.request("session/load", { sessionId, cwd: HOME, mcpServers: [] });
      equal(kinds(seen), ["user_message_chunk", "agent_message_chunk"]);
      await prompt(agent, sessionId, "and this");
      contains(said(seen), "You said: and this");
      await agent.request("session/close", { sessionId });
      await agent.request("session/delete", { sessionId });
      equal((await agent.request("session/list", {})).sessions, []);
    },
    { home: killed.folder },
  );
});

check("options", "model", async () => {
  await withAgent(async (agent, seen) => {
    const { sessionId, configOptions } = await newSession(agent);
    const [{ options, currentValue }] = configOptions;
    const value = options.map((it) => it.value).find((it) => it !== currentValue);
    await agent.request("session/set_config_option", { sessionId, configId: "model", value });
    await prompt(agent, sessionId, "hello");
    equal(said(seen), "of the other model");
  });
});

check("errors", "unknown session, method and folder", async () => {
  await withAgent(async (agent) => {
    const codeOf = async (method, params) => {
      try {
        await agent.request(method, params);
      } catch (exc) {
        return exc.code;
      }
    };
    equal(await codeOf("session/prompt", { sessionId: "no", prompt: text("x") }), -32002);
    equal(await codeOf("session/new", { cwd: "/no/such/folder", mcpServers: [] }), -32602);
    equal(await codeOf("_nothing/here", {}), -32601);
  });
});

check("subagents", "sessions of the open proposal", async () => {
  await withAgent(
    async (agent, seen) => {
      const { sessionId } = await newSession(agent);
      await prompt(agent, sessionId, "write it");
      const states = seen.updates
        .filter((it) => it.update.sessionUpdate === "subagent_update")
        .map((it) => it.update.state.state);
      equal(states, ["running", "requires_action", "idle"]);
      const child = seen.questions[0].sessionId;
      equal(child === sessionId, false);
      contains(said({ updates: seen.updates.filter((it) => it.sessionId === child) }), "written");
      rmSync(path.join(HOME, "notes.md"));
    },
    { sdk: unstable, capabilities: { subagents: {} } },
  );
});

await main("@agentclientprotocol/sdk");
