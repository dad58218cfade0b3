// The official client of Anthropic for JavaScript, `@anthropic-ai/sdk`: messages and its helpers.

import {
  check, collect, contains, endingOf, equal, KEY, load, main, newestRun, PIXEL, rejected, SERVER,
} from "./check_kit.mjs";

const { default: Anthropic } = await load("@anthropic-ai/sdk");
const { zodOutputFormat } = await load("@anthropic-ai/sdk/helpers/zod");
const { betaZodTool } = await load("@anthropic-ai/sdk/helpers/beta/zod");
const { z } = await load("zod");

const client = new Anthropic({ baseURL: SERVER, apiKey: KEY, maxRetries: 0, timeout: 20000 });
const Weather = z.object({ city: z.string(), degrees: z.number().int() });
const FITTING = { city: "Lima", degrees: 18 };
const input_schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const TOOLS = [{ name: "weather", description: "How it is outside.", input_schema }];
const IMAGE = { type: "image", source: { type: "base64", media_type: "image/png", data: PIXEL } };
const user = (content) => ({ role: "user", content });
const assistant = (message) => ({ role: "assistant", content: message.content });
const given = (messages, more = {}) => ({ model: "report", max_tokens: 1000, messages, ...more });
const send = (messages, more, options) => client.messages.create(given(messages, more), options);
const ask = (content, more, options) => send([user(content)], more, options);
const textOf = (message) =>
  message.content.filter((it) => it.type === "text").map((it) => it.text).join("");
const callsOf = (message) => message.content.filter((it) => it.type === "tool_use");
const result = (call, content) => ({ type: "tool_result", tool_use_id: call.id, content });
const reported = (message) => JSON.parse(textOf(message));

check("plain", "message, models, instructions", async () => {
  equal(textOf(await ask("hello")), "You said: hello");
  contains((await collect(client.models.list())).map((it) => it.id), "report");
  contains(reported(await ask("report", { system: "Be brief." })).instructions, "Be brief.");
});

check("stream", "events and helper", async () => {
  const events = await collect(await ask("one two", { stream: true }));
  const pieces = events.filter((it) => it.type === "content_block_delta").map((it) => it.delta.text);
  equal(pieces.join(""), "You said: one two");
  equal([events[0].type, events.at(-1).type], ["message_start", "message_stop"]);
  const helper = client.messages.stream(given([user("one two")]));
  equal(await helper.finalText(), "You said: one two");
});

check("usage", "plain and streamed", async () => {
  const plain = (await ask("hello")).usage;
  const streamed = (await client.messages.stream(given([user("hello")])).finalMessage()).usage;
  for (const usage of [plain, streamed]) equal([usage.input_tokens, usage.output_tokens], [10, 3]);
});

check("tools", "call and result", async () => {
  const first = await ask("call weather", { tools: TOOLS });
  const [call] = callsOf(first);
  equal([first.stop_reason, call.input], ["tool_use", { city: "Lima" }]);
  const messages = [user("call weather"), assistant(first), user([result(call, "foggy")])];
  equal(textOf(await send(messages, { tools: TOOLS })), "The tools say: foggy.");
});

check("tools", "the tool runner", async () => {
  const weather = betaZodTool({
    name: "weather",
    description: "How it is outside.",
    inputSchema: z.object({ city: z.string() }),
    run: ({ city }) => `foggy in ${city}`,
  });
  const runner = client.beta.messages.toolRunner(given([user("call weather")], { tools: [weather] }));
  equal(textOf(await runner.runUntilDone()), "The tools say: foggy in Lima.");
});

check("tools", "a name with dots", async () => {
  const tools = [{ ...TOOLS[0], name: "weather.get" }];
  const tool_choice = { type: "tool", name: "weather.get" };
  const first = await ask("hello", { tools, tool_choice });
  const [call] = callsOf(first);
  equal(call.name, "weather.get");
  const messages = [user("hello"), assistant(first), user([result(call, "foggy")])];
  equal(textOf(await send(messages, { tools })), "The tools say: foggy.");
});

check("parallel calls", "two calls in one answer", async () => {
  const first = await ask("call weather twice", { tools: TOOLS });
  const [one, two] = callsOf(first);
  const results = user([result(one, "foggy"), result(two, "sunny")]);
  const answer = await send([user("call weather twice"), assistant(first), results], { tools: TOOLS });
  equal(textOf(answer), "The tools say: foggy, sunny.");
});

check("streamed calls", "calls in a stream", async () => {
  const stream = client.messages.stream(given([user("call weather twice")], { tools: TOOLS }));
  const calls = callsOf(await stream.finalMessage());
  equal(calls.map((it) => it.input), [{ city: "Lima" }, { city: "Lima" }]);
});

check("tool choice", "none, auto, any, named", async () => {
  const none = await ask("report", { tools: TOOLS, tool_choice: { type: "none" } });
  equal(reported(none).tools, []);
  const auto = await ask("hello", { tools: TOOLS, tool_choice: { type: "auto" } });
  equal(textOf(auto), "You said: hello");
  for (const tool_choice of [{ type: "any" }, { type: "tool", name: "weather" }])
    equal(callsOf(await ask("hello", { tools: TOOLS, tool_choice }))[0].name, "weather");
});

check("one call at a time", "disable_parallel_tool_use", async () => {
  const tool_choice = { type: "auto", disable_parallel_tool_use: true };
  equal(callsOf(await ask("call weather twice", { tools: TOOLS, tool_choice })).length, 1);
});

check("structured output", "parse", async () => {
  const output_config = { format: zodOutputFormat(Weather) };
  const answer = await client.messages.parse(given([user("hello")], { output_config }));
  equal(answer.parsed_output, FITTING);
});

check("settings", "sampling and limits", async () => {
  const found = reported(await ask("report", { temperature: 0.5, stop_sequences: ["@"] })).settings;
  equal([found.temperature, found.stop], [0.5, ["@"]]);
  equal((await ask("one two three four", { max_tokens: 3 })).stop_reason, "max_tokens");
});

check("images and files", "blocks, also in results", async () => {
  const pdf = { type: "base64", media_type: "application/pdf", data: PIXEL };
  const blocks = [{ type: "text", text: "report" }, IMAGE, { type: "document", source: pdf }];
  const shown = reported(await ask(blocks)).messages[0].parts;
  equal(shown.map((it) => it.type), ["image/png", "application/pdf"]);
  const first = await ask("call weather", { tools: TOOLS });
  const results = [result(callsOf(first)[0], [IMAGE]), { type: "text", text: "report" }];
  const answer = await send([user("call weather"), assistant(first), user(results)]);
  equal(reported(answer).messages[2].parts.map((it) => it.type), ["image/png"]);
});

check("several turns", "history reaches the model", async () => {
  const said = { role: "assistant", content: "Hello, Ann." };
  const answer = await send([user("I am Ann."), said, user("report")]);
  equal(reported(answer).messages.map((it) => it.role), ["user", "assistant", "user"]);
});

check("reasoning", "thinking blocks", async () => {
  const more = { model: "thoughtful", thinking: { type: "adaptive" } };
  const answer = await ask("hi", more);
  equal(answer.content.map((it) => it.type), ["thinking", "text"]);
  const again = await send([user("hi"), assistant(answer), user("report")]);
  equal(reported(again).messages.length, 3);
});

check("count_tokens", "tokens are counted", async () => {
  const counted = (more) =>
    client.messages.countTokens({ model: "report", messages: [user("hello")], ...more });
  const [few, more] = [await counted({}), await counted({ tools: TOOLS })];
  if (!(0 < few.input_tokens && few.input_tokens < more.input_tokens))
    throw new Error(`${few.input_tokens} and ${more.input_tokens} tokens`);
});

check("auth headers", "key and bearer token", async () => {
  for (const auth of [{ apiKey: KEY, authToken: null }, { apiKey: null, authToken: KEY }]) {
    const own = new Anthropic({ baseURL: SERVER, maxRetries: 0, ...auth });
    contains((await collect(own.models.list())).map((it) => it.id), "report");
  }
});

check("errors", "each failure has its class and shape", async () => {
  for (const [model, kind, name] of [
    ["limited", Anthropic.RateLimitError, "rate_limit_error"],
    ["poor", Anthropic.RateLimitError, "rate_limit_error"],
    ["long", Anthropic.BadRequestError, "invalid_request_error"],
    ["broken", Anthropic.InternalServerError, "overloaded_error"],
    ["nobody", Anthropic.NotFoundError, "not_found_error"],
  ]) {
    const error = await rejected(kind, ask("hi", { model }));
    equal([error.error.type, error.error.error.type], ["error", name]);
    await rejected(kind, client.messages.stream(given([user("hi")], { model })).finalMessage());
  }
  const other = new Anthropic({ baseURL: SERVER, apiKey: "of-nobody", maxRetries: 0 });
  await rejected(Anthropic.AuthenticationError, other.models.list());
});

check("idempotency", "one key is one run", async () => {
  const count = async (options) => textOf(await ask("hi", { model: "count" }, options));
  const headers = { "Idempotency-Key": `anthropic node ${await count()}` };
  const first = await count({ headers });
  equal(await count({ headers }), first);
});

check("cancel", "an aborted stream cancels the run", async () => {
  const stream = client.messages.stream(given([user("go")], { model: "endless" }));
  let run;
  await rejected(Anthropic.APIUserAbortError, (async () => {
    for await (const event of stream) {
      if (event.type !== "content_block_delta") continue;
      run = await newestRun();
      stream.abort();
    }
    await stream.finalMessage();
  })());
  equal(await endingOf(run), "cancelled");
});

await main("@anthropic-ai/sdk", "zod");
