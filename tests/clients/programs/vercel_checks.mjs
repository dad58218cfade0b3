// Vercel's AI SDK with both of its providers: `@ai-sdk/openai`, whose default are responses, and
// `@ai-sdk/openai-compatible`, which sends chat completions.

import {
  check, collect, contains, endingOf, equal, KEY, load, main, newestRun, PIXEL, rejected, URL_V1,
} from "./check_kit.mjs";

const {
  APICallError, generateObject, generateText, isStepCount, Output, stepCountIs, streamObject, streamText, tool,
} = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");

const openai = createOpenAI({ baseURL: URL_V1, apiKey: KEY });
const compatible = createOpenAICompatible({
  name: "served", baseURL: URL_V1, apiKey: KEY, includeUsage: true, supportsStructuredOutputs: true,
});
const steps = (isStepCount ?? stepCountIs)(5);
const schema = z.object({ city: z.string(), degrees: z.number().int() });
const FITTING = { city: "Lima", degrees: 18 };
const weather = tool({
  description: "How it is outside.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `foggy in ${city}`,
});
const tools = { weather };
const each = (name = "report") => ({
  responses: openai(name), chat: openai.chat(name), compatible: compatible(name),
});

/** Check a feature with each provider and protocol. */
function checkEach(feature, name, run, model = "report") {
  for (const [kind, one] of Object.entries(each(model))) check(feature, `${name} (${kind})`, () => run(one));
}

const ask = (model, prompt, more = {}) => generateText({ model, prompt, maxRetries: 0, ...more });
const reported = (answer) => JSON.parse(answer.text);

checkEach("plain", "generateText", async (model) => {
  equal((await ask(model, "hello")).text, "You said: hello");
  const system = { [isStepCount ? "instructions" : "system"]: "Be brief." };
  contains(reported(await ask(model, "report", system)).instructions, "Be brief.");
});

checkEach("stream", "streamText", async (model) => {
  const pieces = await collect(streamText({ model, prompt: "one two" }).textStream);
  equal(pieces.join(""), "You said: one two");
});

checkEach("usage", "plain and streamed", async (model) => {
  equal((await ask(model, "hello")).usage.totalTokens, 13);
  const stream = streamText({ model, prompt: "hello" });
  await stream.consumeStream();
  equal((await stream.usage).totalTokens, 13);
});

checkEach("tools", "several steps", async (model) => {
  const answer = await ask(model, "call weather", { tools, stopWhen: steps });
  equal(answer.text, "The tools say: foggy in Lima.");
});

checkEach("parallel calls", "two calls in one answer", async (model) => {
  const answer = await ask(model, "call weather twice", { tools, stopWhen: steps });
  equal(answer.text, "The tools say: foggy in Lima, foggy in Lima.");
});

checkEach("streamed calls", "several steps in a stream", async (model) => {
  const stream = streamText({ model, prompt: "call weather", tools, stopWhen: steps });
  equal((await collect(stream.textStream)).join(""), "The tools say: foggy in Lima.");
});

checkEach("tool choice", "none, auto, required, named", async (model) => {
  const none = await ask(model, "report", { tools, toolChoice: "none" });
  equal(reported(none).tools, []);
  equal((await ask(model, "hello", { tools, toolChoice: "auto" })).text, "You said: hello");
  for (const toolChoice of ["required", { type: "tool", toolName: "weather" }]) {
    const answer = await ask(model, "hello", { tools, toolChoice });
    equal(answer.toolCalls.map((it) => it.toolName), ["weather"]);
  }
});

for (const [kind, model] of Object.entries({ responses: openai("report"), chat: openai.chat("report") })) {
  check("one call at a time", `parallelToolCalls: false (${kind})`, async () => {
    const providerOptions = { openai: { parallelToolCalls: false } };
    const answer = await ask(model, "call weather twice", { tools, providerOptions });
    equal(answer.toolCalls.length, 1);
  });
}

if (generateObject)
  checkEach("structured output", "generateObject and streamObject", async (model) => {
    equal((await generateObject({ model, schema, prompt: "hello", maxRetries: 0 })).object, FITTING);
    const stream = streamObject({ model, schema, prompt: "hello" });
    await collect(stream.partialObjectStream);
    equal(await stream.object, FITTING);
  });

checkEach("structured output", "Output.object, also behind a tool", async (model) => {
  const output = Output.object({ schema });
  equal((await ask(model, "hello", { output })).output, FITTING);
  const behind = await ask(model, "call weather", { output, tools, stopWhen: steps });
  equal(behind.output, FITTING);
});

checkEach("structured output", "Output.array and Output.choice", async (model) => {
  equal((await ask(model, "hello", { output: Output.array({ element: schema }) })).output, [FITTING]);
  equal((await ask(model, "hello", { output: Output.choice({ options: ["a", "b"] }) })).output, "a");
});

checkEach("settings", "sampling and limits", async (model) => {
  const { settings } = reported(await ask(model, "report", { temperature: 0.5, topP: 0.9 }));
  equal([settings.temperature, settings.top_p], [0.5, 0.9]);
  const cut = await ask(model, "one two three", { maxOutputTokens: 3 });
  equal([cut.text, cut.finishReason], ["You said: one ", "length"]);
});

for (const [kind, model] of Object.entries({ chat: openai.chat("report"), compatible: compatible("report") })) {
  check("settings", `seed, stop and penalties (${kind})`, async () => {
    const given = { seed: 7, stopSequences: ["@"], presencePenalty: 0.1, frequencyPenalty: 0.2 };
    const { settings } = reported(await ask(model, "report", given));
    equal([settings.seed, settings.stop, settings.presence_penalty], [7, ["@"], 0.1]);
  });
}

checkEach("images and files", "parts", async (model) => {
  const bytes = Uint8Array.from(atob(PIXEL), (it) => it.charCodeAt(0));
  // It looks at the first bytes, and believes them more than the type.
  const pdf = new TextEncoder().encode("%PDF-1.4");
  const content = [
    { type: "text", text: "report" },
    { type: "file", data: bytes, mediaType: "image/png" },
    { type: "file", data: pdf, mediaType: "application/pdf", filename: "a.pdf" },
  ];
  const answer = await generateText({ model, messages: [{ role: "user", content }], maxRetries: 0 });
  const types = reported(answer).messages[0].parts.map((it) => it.type);
  equal(types, ["image/png", "application/pdf"]);
});

checkEach("several turns", "messages of the answer before", async (model) => {
  const first = { role: "user", content: "call weather" };
  const begun = await generateText({ model, messages: [first], tools, stopWhen: steps, maxRetries: 0 });
  const said = begun.responseMessages ?? begun.response.messages;
  const messages = [first, ...said, { role: "user", content: "report" }];
  const answer = await generateText({ model, messages, tools, maxRetries: 0 });
  const roles = reported(answer).messages.map((it) => it.role);
  equal(roles, ["user", "assistant", "tool", "assistant", "user"]);
});

check("previous_response_id", "a response is continued", async () => {
  const first = await ask(openai("report"), "I am Ann.");
  const previousResponseId = first.providerMetadata.openai.responseId;
  const providerOptions = { openai: { previousResponseId } };
  const second = await ask(openai("report"), "report", { providerOptions });
  equal(reported(second).messages.length, 3);
});

check("conversation", "turns of a conversation", async () => {
  const made = await fetch(`${URL_V1}/conversations`, {
    method: "POST",
    body: "{}",
    headers: { authorization: `Bearer ${KEY}`, "content-type": "application/json" },
  });
  const providerOptions = { openai: { conversation: (await made.json()).id } };
  await ask(openai("report"), "I am Ann.", { providerOptions });
  const second = await ask(openai("report"), "report", { providerOptions });
  equal(reported(second).messages.length, 3);
});

check("reasoning", "reasoning of a response", async () => {
  const providerOptions = { openai: { reasoningSummary: "auto", forceReasoning: true } };
  const answer = await ask(openai("thoughtful"), "hi", { providerOptions });
  contains(answer.reasoningText, "Let me see.");
});

checkEach("errors", "APICallError", async () => {
  for (const [name, status, isRetryable] of [
    ["limited", 429, true], ["long", 400, false], ["broken", 503, true], ["nobody", 404, false],
  ]) {
    for (const model of Object.values(each(name))) {
      const error = await rejected(APICallError, ask(model, "hi"));
      equal([error.statusCode, error.isRetryable], [status, isRetryable]);
    }
  }
});

checkEach("errors", "an error of a stream", async (model) => {
  const parts = await collect(streamText({ model, prompt: "hi", maxRetries: 0, onError() {} }).fullStream);
  contains(parts.map((it) => it.type), "error");
}, "limited");

checkEach("idempotency", "one key is one run", async (model) => {
  const first = (await ask(model, "hi")).text;
  const headers = { "Idempotency-Key": `vercel ${first}` };
  const said = (await ask(model, "hi", { headers })).text;
  equal((await ask(model, "hi", { headers })).text, said);
}, "count");

for (const [kind, model] of Object.entries({ chat: openai.chat("endless"), compatible: compatible("endless") })) {
  check("cancel", `an aborted stream cancels the run (${kind})`, async () => {
    const controller = new AbortController();
    const stream = streamText({ model, prompt: "go", abortSignal: controller.signal, onError() {} });
    let run;
    for await (const part of stream.fullStream) {
      if (part.type !== "text-delta") continue;
      run = await newestRun();
      controller.abort();
    }
    equal(await endingOf(run), "cancelled");
  });
}

await main("ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible");
