// The official client of AG-UI, `@ag-ui/client`, which verifies the order and form of all events.

import { check, contains, equal, get, KEY, load, main, newestRun, SERVER } from "./check_kit.mjs";

const { HttpAgent, buildResumeArray } = await load("@ag-ui/client");

const user = (content, id = crypto.randomUUID()) => ({ id, role: "user", content });
const headers = { Authorization: `Bearer ${KEY}` };
const agentOf = (name, ...initialMessages) =>
  new HttpAgent({ url: `${SERVER}/agui?agent=${name}`, headers, initialMessages });
const textOf = (agent) =>
  agent.messages.filter((it) => it.role === "assistant" && it.content && !it.subagentRunId).at(-1).content;

/** Run an agent, and return all events. */
async function run(agent, parameters = {}) {
  const events = [];
  await agent.runAgent(parameters, { onEvent: ({ event }) => void events.push(event) });
  return events;
}
const of = (events, ...types) => events.filter((it) => types.includes(it.type));

check("plain", "message, instructions, context", async () => {
  const agent = agentOf("report", user("hello"));
  await run(agent);
  equal(textOf(agent), "You said: hello");
  const told = agentOf("report", { id: "s", role: "system", content: "Be brief." }, user("report"));
  await run(told, { context: [{ description: "The page", value: "orders" }] });
  const { instructions } = JSON.parse(textOf(told));
  for (const part of ["Be brief.", "The page: orders"]) contains(instructions, part);
});

check("stream", "deltas", async () => {
  const events = await run(agentOf("report", user("one two")));
  const pieces = of(events, "TEXT_MESSAGE_CONTENT").map((it) => it.delta);
  equal(pieces.join(""), "You said: one two");
  if (pieces.length < 2) throw new Error("the text came in one piece");
});

check("usage", "tokens of the run", async () => {
  const events = await run(agentOf("report", user("hello")));
  const [{ inputTokens, outputTokens }] = events.at(-1).usage;
  equal([inputTokens, outputTokens], [10, 3]);
});

check("tools", "call and result", async () => {
  const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const tools = [{ name: "weather", description: "How it is outside.", parameters }];
  const agent = agentOf("report", user("call weather"));
  const events = await run(agent, { tools });
  const [toolCallId] = events.at(-1).outcome.pendingToolCallIds;
  agent.addMessage({ id: "r", role: "tool", toolCallId, content: "foggy" });
  await run(agent, { tools });
  equal(textOf(agent), "The tools say: foggy.");
});

check("several turns", "history", async () => {
  const agent = agentOf("report", user("hello"));
  await run(agent);
  agent.addMessage(user("report"));
  await run(agent);
  equal(JSON.parse(textOf(agent)).messages.map((it) => it.text), ["hello", "You said: hello", "report"]);
});

check("errors", "a failed run, and a wrong key", async () => {
  const [error] = of(await run(agentOf("poor", user("hello"))), "RUN_ERROR");
  contains(error.message, "the account is empty");
  const stranger = agentOf("poor", user("hello"));
  stranger.headers = {};
  const failed = await stranger.runAgent().then(() => "", (exc) => exc.message);
  contains(failed, "HTTP 401");
});

check("state", "our part beside the application's", async () => {
  const agent = agentOf("report", user("hello"));
  agent.state = { cart: 3 };
  await run(agent);
  equal([agent.state.cart, agent.state.orchestrator.status], [3, "succeeded"]);
  equal(agent.state.orchestrator.run, await newestRun());
});

const answersTo = (agent, payload) =>
  buildResumeArray(
    agent.pendingInterrupts,
    Object.fromEntries(agent.pendingInterrupts.map((it) => [it.id, { status: "resolved", payload }])),
  );

check("subagents", "results, errors, calls, detached", async () => {
  const agent = agentOf("editor", user("go"));
  const first = await run(agent);
  const second = await run(agent, { resume: answersTo(agent, { approved: true }) });
  const started = of(second, "SUBAGENT_STARTED");
  equal(started.map((it) => it.name).sort(), ["broken", "careful"]);
  equal(new Set(started.map((it) => it.parentToolCallId)).size, 1);
  contains(of([...first, ...second], "SUBAGENT_ERROR")[0].message, "overloaded");
  equal(of(second, "SUBAGENT_FINISHED").at(-1).result, "home is public");
  const later = agentOf("team", user("look"));
  const [finished] = of(await run(later), "SUBAGENT_FINISHED");
  equal([finished.result, textOf(later)], ["It is Lima.", "Looked up."]);
});

check("approvals", "approved and denied", async () => {
  const agent = agentOf("careful", user("go"));
  await run(agent);
  contains(agent.pendingInterrupts[0].message, "publish");
  await run(agent, { resume: answersTo(agent, { approved: true }) });
  equal(textOf(agent), "home is public");
  const denied = agentOf("careful", user("go"));
  await run(denied);
  await run(denied, { resume: answersTo(denied, { approved: false, reason: "not today" }) });
  contains(textOf(denied), "not today");
});

check("approvals", "each message once after an interrupt", async () => {
  const agent = agentOf("editor", user("go"));
  await run(agent);
  const before = agent.messages.map((it) => it.id);
  await run(agent, { resume: answersTo(agent, { approved: true }) });
  const after = agent.messages.map((it) => it.id);
  equal(after.slice(0, before.length), before);
  equal(after.length, new Set(after).size);
});

/** Begin the run of an agent that never ends, and hang up after its first word. */
async function left(runId) {
  const agent = agentOf("endless", user("go"));
  const began = new Promise((done) => {
    void agent
      .runAgent({ runId }, { onTextMessageContentEvent: () => void done() })
      .catch(() => {});
  });
  await began;
  agent.abortRun();
  return agent;
}

const stop = (id) => fetch(`${SERVER}/v1/runs/${id}/cancel`, { method: "POST", headers });

check("reconnection", "the same run id goes on, and nothing is doubled", async () => {
  const runId = crypto.randomUUID();
  const agent = await left(runId);
  const id = await newestRun();
  const back = agentOf("endless", ...agent.messages);
  back.threadId = agent.threadId;
  const types = [];
  await back.runAgent({ runId }, {
    onEvent: ({ event }) => {
      types.push(event.type);
      if (event.type === "TEXT_MESSAGE_START") void stop(id);
    },
  });
  contains(types, "MESSAGES_SNAPSHOT");
  equal(textOf(back), "Once ");
  equal(await newestRun(), id);
});

check("stop", "the outcome of a stopped run", async () => {
  const agent = agentOf("endless", user("go"));
  let outcome;
  await agent.runAgent({}, {
    onTextMessageContentEvent: async () => void stop(await newestRun()),
    onRunFinishedEvent: ({ event }) => void (outcome = event.outcome),
  });
  equal(outcome, { type: "cancelled" });
  equal((await get(`/v1/runs/${await newestRun()}`)).status, "cancelled");
});

await main("@ag-ui/client");
