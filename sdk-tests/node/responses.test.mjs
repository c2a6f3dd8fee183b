// The Responses API of the OpenAI SDK, on models behind each upstream protocol. Nothing is stored.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import OpenAI from "openai";

import { KEY, MODELS, start } from "./gateway.mjs";

let gateway, client;
before(async () => {
  gateway = await start();
  client = new OpenAI({ baseURL: `${gateway.base}/v1`, apiKey: KEY, maxRetries: 0 });
});
after(async () => assert.equal(await gateway.stop(), 0));

const each = (name, run) => MODELS.forEach((model) => test(`${name}: ${model}`, () => run(model)));
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = ["get_weather", "get_time"].map((name) => ({ type: "function", name, parameters, strict: false }));
const expected = ["get_weather:Oslo", "get_time:Bergen", "get_weather:Tromsø"];

each("response", async (model) => {
  const reply = await client.responses.create({ model, input: "say: naïve 日本語 🦊", store: false });
  assert.equal(reply.output_text, "naïve 日本語 🦊");
  assert.deepEqual([reply.model, reply.status, reply.usage.total_tokens], [model, "completed", 18]);
});

each("streamed response", async (model) => {
  const stream = client.responses.stream({ model, input: "say: naïve 日本語 🦊 and more", store: false });
  const reply = await stream.finalResponse();
  assert.equal(reply.output_text, "naïve 日本語 🦊 and more");
  assert.equal(reply.usage.total_tokens, 18);
});

each("three turns of tools", async (model) => {
  const input = [{ role: "user", content: "please use tools" }];
  const seen = [];
  for (let turn = 0; ; turn += 1) {
    const reply = await client.responses.create({ model, input, tools, store: false });
    const calls = reply.output.filter((item) => item.type === "function_call");
    if (calls.length === 0) {
      assert.deepEqual([turn, seen], [2, expected]);
      assert.equal(reply.output_text, `results: ${expected.join(" | ")}`);
      return;
    }
    input.push(...reply.output);
    for (const { name, arguments: text, call_id } of calls) {
      const output = `${name}:${JSON.parse(text).city}`;
      seen.push(output);
      input.push({ type: "function_call_output", call_id, output });
    }
  }
});

each("what would be stored", async (model) => {
  const stored = client.responses.create({ model, input: "hi", previous_response_id: "resp_1", store: false });
  await assert.rejects(stored, (error) => error.status === 400 && error.param === "previous_response_id");
  await assert.rejects(client.responses.retrieve("resp_1"), (error) => error.status === 404 && error.code === "response_not_found");
});
