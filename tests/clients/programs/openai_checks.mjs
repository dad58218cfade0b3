// The official client for JavaScript, `openai`: chat completions, responses and its helpers.

import {
  check, collect, contains, endingOf, equal, KEY, load, main, newestRun, PIXEL, rejected, URL_V1,
} from "./check_kit.mjs";

const { default: OpenAI } = await load("openai");
const { zodFunction, zodResponseFormat, zodTextFormat } = await load("openai/helpers/zod");
const { z } = await load("zod");

const client = new OpenAI({ baseURL: URL_V1, apiKey: KEY, maxRetries: 0, timeout: 20000 });
const chat = client.chat.completions;
const Weather = z.object({ city: z.string(), degrees: z.number().int() });
const FITTING = { city: "Lima", degrees: 18 };
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const TOOLS = [{ type: "function", function: { name: "weather", parameters } }];
const FUNCTIONS = [{ type: "function", name: "weather", parameters, strict: true }];
const user = (content) => ({ role: "user", content });
const ask = (text, more = {}) => chat.create({ model: "report", messages: [user(text)], ...more });
const content = (answer) => answer.choices[0].message.content;
const respond = (input, more = {}) => client.responses.create({ model: "report", input, ...more });
const callsOf = (response) => response.output.filter((it) => it.type === "function_call");
const reported = (text) => JSON.parse(text);

check("plain", "chat completion and response", async () => {
  equal(content(await ask("hello")), "You said: hello");
  equal((await respond("hello")).output_text, "You said: hello");
  contains((await collect(client.models.list())).map((it) => it.id), "report");
});

check("stream", "chunks and events", async () => {
  const chunks = await collect(await ask("one two", { stream: true }));
  const pieces = chunks.map((it) => it.choices[0].delta.content ?? "");
  equal(pieces.join(""), "You said: one two");
  const stream = client.responses.stream({ model: "report", input: "one two" });
  equal((await stream.finalResponse()).output_text, "You said: one two");
  const helper = chat.stream({ model: "report", messages: [user("one two")] });
  equal(await helper.finalContent(), "You said: one two");
});

check("usage", "plain and streamed", async () => {
  equal((await ask("hello")).usage.total_tokens, 13);
  equal((await respond("hello")).usage.total_tokens, 13);
  const more = { stream: true, stream_options: { include_usage: true } };
  equal((await collect(await ask("hello", more))).at(-1).usage.total_tokens, 13);
});

const runnable = {
  type: "function",
  function: { name: "weather", parameters, parse: JSON.parse, function: ({ city }) => `foggy in ${city}` },
};

check("tools", "runTools", async () => {
  const runner = chat.runTools({ model: "report", messages: [user("call weather")], tools: [runnable] });
  equal(await runner.finalContent(), "The tools say: foggy in Lima.");
});

check("tools", "a response and its result", async () => {
  const first = await respond("call weather", { tools: FUNCTIONS });
  const [call] = callsOf(first);
  const result = { type: "function_call_output", call_id: call.call_id, output: "foggy" };
  const second = await respond([result], { tools: FUNCTIONS, previous_response_id: first.id });
  equal(second.output_text, "The tools say: foggy.");
  const stateless = await respond([user("call weather"), ...first.output, result], { tools: FUNCTIONS });
  equal(stateless.output_text, "The tools say: foggy.");
});

check("tools", "a tool of zod", async () => {
  const tools = [zodFunction({ name: "weather", parameters: Weather })];
  const answer = await chat.parse({ model: "report", messages: [user("call weather")], tools });
  equal(answer.choices[0].message.tool_calls[0].function.parsed_arguments, FITTING);
});

check("parallel calls", "two calls in one answer", async () => {
  const answer = await ask("call weather twice", { tools: TOOLS });
  equal(answer.choices[0].message.tool_calls.length, 2);
  equal(callsOf(await respond("call weather twice", { tools: FUNCTIONS })).length, 2);
});

check("streamed calls", "runTools with a stream", async () => {
  const runner = chat.runTools({
    model: "report", messages: [user("call weather twice")], tools: [runnable], stream: true,
  });
  equal(await runner.finalContent(), "The tools say: foggy in Lima, foggy in Lima.");
  const stream = client.responses.stream({ model: "report", input: "call weather", tools: FUNCTIONS });
  equal(callsOf(await stream.finalResponse())[0].arguments.replaceAll(" ", ""), '{"city":"Lima"}');
});

check("tool choice", "none, auto, required, named", async () => {
  equal(reported(content(await ask("report", { tools: TOOLS, tool_choice: "none" }))).tools, []);
  equal(content(await ask("hello", { tools: TOOLS, tool_choice: "auto" })), "You said: hello");
  for (const tool_choice of ["required", { type: "function", function: { name: "weather" } }]) {
    const answer = await ask("hello", { tools: TOOLS, tool_choice });
    equal(answer.choices[0].message.tool_calls[0].function.name, "weather");
  }
  for (const tool_choice of ["required", { type: "function", name: "weather" }]) {
    equal(callsOf(await respond("hello", { tools: FUNCTIONS, tool_choice }))[0].name, "weather");
  }
});

check("one call at a time", "parallel_tool_calls: false", async () => {
  const answer = await ask("call weather twice", { tools: TOOLS, parallel_tool_calls: false });
  equal(answer.choices[0].message.tool_calls.length, 1);
});

check("custom tools", "a custom tool is called", async () => {
  const tools = [{ type: "custom", name: "shell" }];
  const first = await respond("call shell", { tools });
  const call = first.output.find((it) => it.type === "custom_tool_call");
  const result = { type: "custom_tool_call_output", call_id: call.call_id, output: "done" };
  const second = await respond([result], { tools, previous_response_id: first.id });
  equal(second.output_text, "The tools say: done.");
});

check("structured output", "zodResponseFormat, parsed and streamed", async () => {
  const response_format = zodResponseFormat(Weather, "weather");
  const given = { model: "report", messages: [user("hello")], response_format };
  equal((await chat.parse(given)).choices[0].message.parsed, FITTING);
  const whole = await chat.stream(given).finalChatCompletion();
  equal(whole.choices[0].message.parsed, FITTING);
});

check("structured output", "zodTextFormat, parsed and streamed", async () => {
  const given = { model: "report", input: "hello", text: { format: zodTextFormat(Weather, "weather") } };
  equal((await client.responses.parse(given)).output_parsed, FITTING);
  equal((await client.responses.stream(given).finalResponse()).output_parsed, FITTING);
});

check("structured output", "json_object", async () => {
  equal(content(await ask("hello", { response_format: { type: "json_object" } })), "{}");
});

check("settings", "sampling and limits", async () => {
  const given = { temperature: 0.5, top_p: 0.9, seed: 7, presence_penalty: 0.1, stop: ["@"] };
  const { settings } = reported(content(await ask("report", given)));
  for (const [name, value] of Object.entries(given)) equal(settings[name], value);
  const cut = await ask("one two three", { max_completion_tokens: 3 });
  equal([content(cut), cut.choices[0].finish_reason], ["You said: one ", "length"]);
  const short = await respond("one two three", { max_output_tokens: 3 });
  equal(short.incomplete_details, { reason: "max_output_tokens" });
});

check("images and files", "parts", async () => {
  const url = `data:image/png;base64,${PIXEL}`;
  const file_data = `data:application/pdf;base64,${PIXEL}`;
  const parts = [
    { type: "text", text: "report" },
    { type: "image_url", image_url: { url } },
    { type: "file", file: { filename: "a.pdf", file_data } },
  ];
  const answer = await chat.create({ model: "report", messages: [user(parts)] });
  const inputs = [
    { type: "input_text", text: "report" },
    { type: "input_image", image_url: url },
    { type: "input_file", filename: "a.pdf", file_data },
  ];
  const response = await respond([user(inputs)]);
  for (const text of [content(answer), response.output_text]) {
    const types = reported(text).messages[0].parts.map((it) => it.type);
    equal(types, ["image/png", "application/pdf"]);
  }
});

check("several turns", "history", async () => {
  const said = { role: "assistant", content: "Hi." };
  const answer = await chat.create({ model: "report", messages: [user("I am Ann."), said, user("report")] });
  equal(reported(content(answer)).messages.length, 3);
  const first = await respond("hello");
  const again = await respond([user("hello"), ...first.output, user("report")]);
  equal(reported(again.output_text).messages.length, 3);
});

check("previous_response_id", "a response is continued", async () => {
  const first = await respond("I am Ann.");
  const second = await respond("report", { previous_response_id: first.id });
  equal(reported(second.output_text).messages.length, 3);
  equal((await collect(client.responses.inputItems.list(second.id))).length, 3);
});

check("background", "begun, read, resumed, deleted", async () => {
  const begun = await client.responses.create({ model: "team", input: "go", background: true });
  const events = await collect(await client.responses.retrieve(begun.id, { stream: true }));
  equal(events.at(-1).type, "response.completed");
  const rest = await client.responses.retrieve(begun.id, { stream: true, starting_after: 2 });
  equal((await collect(rest))[0].sequence_number, 3);
  await client.responses.delete(begun.id);
  await rejected(OpenAI.NotFoundError, client.responses.retrieve(begun.id));
});

check("background", "cancelled", async () => {
  const begun = await client.responses.create({ model: "endless", input: "go", background: true });
  equal((await client.responses.cancel(begun.id)).status, "cancelled");
});

check("conversation", "turns of a conversation", async () => {
  const made = await client.conversations.create({});
  await respond("I am Ann.", { conversation: made.id });
  const answer = await respond("report", { conversation: made.id });
  equal(reported(answer.output_text).messages.length, 3);
});

check("reasoning", "reasoning items", async () => {
  const answer = await client.responses.create({
    model: "thoughtful", input: "hi", reasoning: { summary: "auto" },
  });
  contains(answer.output.map((it) => it.type), "reasoning");
});

check("completions", "a legacy completion", async () => {
  const answer = await client.completions.create({ model: "report", prompt: "hello" });
  equal(answer.choices[0].text, "You said: hello");
});

check("n", "several choices", async () => {
  equal((await ask("hello", { n: 2 })).choices.length, 2);
});

check("stored chats", "stored and read again", async () => {
  const answer = await ask("hello", { store: true });
  equal(content(await chat.retrieve(answer.id)), "You said: hello");
});

check("errors", "each failure has its class", async () => {
  for (const [model, kind] of [
    ["limited", OpenAI.RateLimitError],
    ["poor", OpenAI.RateLimitError],
    ["long", OpenAI.BadRequestError],
    ["broken", OpenAI.InternalServerError],
    ["nobody", OpenAI.NotFoundError],
  ]) {
    await rejected(kind, chat.create({ model, messages: [user("hi")] }));
    await rejected(kind, client.responses.create({ model, input: "hi" }));
  }
  const other = new OpenAI({ baseURL: URL_V1, apiKey: "of-nobody", maxRetries: 0 });
  await rejected(OpenAI.AuthenticationError, other.models.list());
});

check("idempotency", "one key is one run", async () => {
  const count = async (options) =>
    content(await chat.create({ model: "count", messages: [user("hi")] }, options));
  const idempotencyKey = `node ${await count()}`;
  const headers = { "Idempotency-Key": idempotencyKey };
  const first = await count({ headers });
  equal(await count({ headers }), first);
});

check("cancel", "an aborted stream cancels the run", async () => {
  const controller = new AbortController();
  const given = { model: "endless", messages: [user("go")], stream: true };
  const stream = await chat.create(given, { signal: controller.signal });
  let run;
  for await (const chunk of stream) {
    if (!chunk.choices[0].delta.content) continue;
    run = await newestRun();
    controller.abort();
  }
  equal(await endingOf(run), "cancelled");
});

await main("openai", "zod");
