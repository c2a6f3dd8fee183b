// The official JavaScript SDKs, on models behind each upstream protocol.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import OpenAI from "openai";

import { KEY, MODELS, start } from "./gateway.mjs";

let gateway, chat, native, messages;
before(async () => {
  gateway = await start();
  chat = new OpenAI({ baseURL: `${gateway.base}/v1`, apiKey: KEY, maxRetries: 0 });
  messages = new Anthropic({ baseURL: gateway.base, apiKey: KEY, maxRetries: 0 });
  native = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: gateway.base } });
});
after(async () => assert.equal(await gateway.stop(), 0));

const each = (name, run) => MODELS.forEach((model) => test(`${name}: ${model}`, () => run(model)));
const ask = (text) => [{ role: "user", content: text }];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const chatTools = ["get_weather", "get_time"].map((name) => ({ type: "function", function: { name, parameters } }));
const nativeTools = [{ functionDeclarations: ["get_weather", "get_time"].map((name) => ({ name, parametersJsonSchema: parameters })) }];
const expected = ["get_weather:Oslo", "get_time:Bergen", "get_weather:Tromsø"];

each("chat answer", async (model) => {
  const reply = await chat.chat.completions.create({ model, messages: ask("say: naïve 日本語 🦊") });
  assert.equal(reply.choices[0].message.content, "naïve 日本語 🦊");
  assert.equal(reply.model, model);
  assert.equal(reply.usage.total_tokens, 18);
});

each("chat stream", async (model) => {
  const stream = chat.chat.completions.stream({ model, messages: ask("say: naïve 日本語 🦊 and more"), stream_options: { include_usage: true } });
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, "naïve 日本語 🦊 and more");
  assert.equal((await stream.totalUsage()).total_tokens, 18);
});

for (const streamed of [false, true]) {
  each(`chat tools in three turns, ${streamed ? "streamed" : "whole"}`, async (model) => {
    const messages = ask("please use tools");
    const seen = [];
    for (let turn = 0; ; turn++) {
      const body = { model, messages, tools: chatTools };
      const reply = streamed ? await chat.chat.completions.stream(body).finalChatCompletion() : await chat.chat.completions.create(body);
      const { message } = reply.choices[0];
      if (turn === 2) {
        assert.equal(message.content, `results: ${expected.join(" | ")}`);
        break;
      }
      assert.equal(reply.choices[0].finish_reason, "tool_calls");
      messages.push(message);
      for (const call of message.tool_calls) {
        const result = `${call.function.name}:${JSON.parse(call.function.arguments).city}`;
        seen.push(result);
        messages.push({ role: "tool", tool_call_id: call.id, content: result });
      }
    }
    assert.deepEqual(seen, expected);
  });

  each(`native tools in three turns, ${streamed ? "streamed" : "whole"}`, async (model) => {
    const contents = [{ role: "user", parts: [{ text: "please use tools" }] }];
    const seen = [];
    for (let turn = 0; ; turn++) {
      const body = { model, contents, config: { tools: nativeTools, automaticFunctionCalling: { disable: true } } };
      const parts = [];
      if (streamed) {
        for await (const chunk of await native.models.generateContentStream(body)) parts.push(...(chunk.candidates[0].content?.parts ?? []));
      } else {
        parts.push(...(await native.models.generateContent(body)).candidates[0].content.parts);
      }
      const calls = parts.filter((part) => part.functionCall).map((part) => part.functionCall);
      if (turn === 2) {
        assert.equal(parts.map((part) => part.text ?? "").join(""), `results: ${expected.join(" | ")}`);
        break;
      }
      contents.push({ role: "model", parts });
      const results = calls.map(({ id, name, args }) => {
        seen.push(`${name}:${args.city}`);
        return { functionResponse: { id, name, response: { output: `${name}:${args.city}` } } };
      });
      contents.push({ role: "user", parts: results });
    }
    assert.deepEqual(seen, expected);
  });
}

each("native answer", async (model) => {
  const reply = await native.models.generateContent({ model, contents: "say: naïve 日本語 🦊" });
  assert.equal(reply.text, "naïve 日本語 🦊");
  assert.equal(reply.usageMetadata.totalTokenCount, 18);
});

each("native stream", async (model) => {
  let text = "";
  for await (const chunk of await native.models.generateContentStream({ model, contents: "say: naïve 日本語 🦊 and more" })) text += chunk.text ?? "";
  assert.equal(text, "naïve 日本語 🦊 and more");
});

each("chat upstream error", async (model) => {
  await assert.rejects(chat.chat.completions.create({ model, messages: ask("fail: 429") }), (error) => error.status === 429 && error.code === "upstream_rate_limited");
});

each("native upstream error", async (model) => {
  await assert.rejects(native.models.generateContent({ model, contents: "fail: 500" }), (error) => error.status === 502);
});

test("model lists of both clients", async () => {
  const names = [];
  for await (const model of chat.models.list()) names.push(model.id);
  assert.ok(MODELS.every((model) => names.includes(model)), names.join());
  const natives = [];
  for await (const model of await native.models.list({ config: { pageSize: 2 } })) natives.push(model.name);
  assert.ok(MODELS.every((model) => natives.includes(`models/${model}`)), natives.join());
});

test("refusals are the SDKs' own error classes", async () => {
  await assert.rejects(chat.chat.completions.create({ model: "none", messages: ask("hi") }), OpenAI.NotFoundError);
  await assert.rejects(new OpenAI({ baseURL: `${gateway.base}/v1`, apiKey: "wrong", maxRetries: 0 }).models.list(), OpenAI.AuthenticationError);
});

const textOf = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");

each("message", async (model) => {
  const reply = await messages.messages.create({ model, max_tokens: 50, messages: ask("say: naïve 日本語 🦊") });
  assert.equal(textOf(reply), "naïve 日本語 🦊");
  assert.deepEqual([reply.model, reply.stop_reason], [model, "end_turn"]);
  assert.deepEqual([reply.usage.input_tokens, reply.usage.cache_read_input_tokens, reply.usage.output_tokens], [9, 2, 7]);
  assert.match(reply._request_id, /^req_/);
});

each("message stream", async (model) => {
  const stream = messages.messages.stream({ model, max_tokens: 50, messages: ask("say: naïve 日本語 🦊 and more") });
  const final = await stream.finalMessage();
  assert.equal(textOf(final), "naïve 日本語 🦊 and more");
  assert.equal(final.usage.output_tokens, 7);
});

for (const streamed of [false, true]) {
  each(`message tools in three turns, ${streamed ? "streamed" : "whole"}`, async (model) => {
    const tools = ["get_weather", "get_time"].map((name) => ({ name, input_schema: parameters }));
    const history = ask("please use tools");
    const seen = [];
    for (let turn = 0; ; turn++) {
      const body = { model, max_tokens: 100, messages: history, tools };
      const reply = streamed ? await messages.messages.stream(body).finalMessage() : await messages.messages.create(body);
      if (turn === 2) {
        assert.equal(textOf(reply), `results: ${expected.join(" | ")}`);
        break;
      }
      assert.equal(reply.stop_reason, "tool_use");
      const results = [];
      for (const call of reply.content.filter((block) => block.type === "tool_use")) {
        const content = `${call.name}:${call.input.city}`;
        seen.push(content);
        results.push({ type: "tool_result", tool_use_id: call.id, content });
      }
      history.push({ role: "assistant", content: reply.content }, { role: "user", content: results });
    }
    assert.deepEqual(seen, expected);
  });
}

each("message token count", async (model) => {
  assert.ok((await messages.messages.countTokens({ model, messages: ask("hello world") })).input_tokens > 0);
});

test("message models", async () => {
  const names = [];
  for await (const model of messages.models.list({ limit: 2 })) names.push(model.id);
  MODELS.forEach((model) => assert.ok(names.includes(model), model));
});

test("message refusals", async () => {
  const refused = (promise, status, type) =>
    assert.rejects(promise, (error) => error.status === status && error.error.error.type === type && error.requestID !== undefined);
  const body = { max_tokens: 50, messages: ask("hi") };
  await refused(messages.messages.create({ model: "no-such-model", ...body }), 404, "not_found_error");
  await refused(messages.messages.create({ model: "chat-model", ...body, thread: { type: "create" } }), 400, "invalid_request_error");
  const unknown = new Anthropic({ baseURL: gateway.base, apiKey: `${KEY}x` });
  await refused(unknown.messages.create({ model: "chat-model", ...body }), 401, "authentication_error");
});
