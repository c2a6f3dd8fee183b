// Sends a conversation and reads an answer in each protocol of callers. A conversation is a list of messages:
// {role: "user", text, images} | {role: "assistant", text, calls, raw} | {role: "tool", results}.
// `raw` is the assistant's message in its own protocol. It is sent back unchanged, with signatures and thinking.

const pathOf = (model) => encodeURI(model).replace(/[?#]/g, encodeURIComponent);
const words = (text) => text.split("\n").map((word) => word.trim()).filter(Boolean);
const parsed = (text) => { try { return JSON.parse(text || "{}"); } catch { return {}; } };

// Tools are given as a list of {name, description, parameters}, or as any of the protocols writes them.
function functions(tools) {
  return tools.flatMap((tool) => {
    if (tool.functionDeclarations) return tool.functionDeclarations;
    const known = tool.function ?? tool;
    return [{ name: known.name, description: known.description, parameters: known.parameters ?? known.input_schema ?? known.parametersJsonSchema }];
  });
}

function defined(object) {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}

// The parts of an answer, independent of the protocol.
class Answer {
  text = "";
  thinking = "";
  calls = [];
  finish = "";
  error = "";
  input = null;
  output = null;
  raw = null;
}

const openai = {
  fields: {
    max: ["max_completion_tokens", "max_tokens"], temperature: ["temperature"], top_p: ["top_p"], top_k: [], effort: ["reasoning_effort"],
    stop: ["stop"], format: ["response_format"], seed: ["seed"], presence: ["presence_penalty"], frequency: ["frequency_penalty"], tools: ["tools"],
  },
  path: () => "/v1/chat/completions",
  body({ model, system, messages, values, tools, stream }) {
    const sent = system ? [{ role: "system", content: system }] : [];
    for (const message of messages) {
      if (message.role === "tool") {
        sent.push(...message.results.map((result) => ({ role: "tool", tool_call_id: result.id, content: result.text })));
      } else if (message.role === "assistant") {
        const calls = message.calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
        sent.push(defined({ role: "assistant", content: message.text || null, tool_calls: calls.length ? calls : undefined }));
      } else if (message.images.length) {
        const images = message.images.map((image) => ({ type: "image_url", image_url: { url: `data:${image.type};base64,${image.data}` } }));
        sent.push({ role: "user", content: [{ type: "text", text: message.text }, ...images] });
      } else {
        sent.push({ role: "user", content: message.text });
      }
    }
    return defined({
      model, messages: sent, ...values, stop: values.stop && words(values.stop),
      response_format: values.response_format && { type: values.response_format === "json" ? "json_object" : "text" },
      tools: tools?.length ? functions(tools).map((tool) => ({ type: "function", function: tool })) : undefined,
      stream: stream || undefined, stream_options: stream ? { include_usage: true } : undefined,
    });
  },
  take(answer, event) {
    if (event.error) answer.error = event.error.message ?? String(event.error);
    const choice = event.choices?.[0];
    const said = choice?.delta ?? choice?.message ?? {};
    answer.text += said.content ?? "";
    answer.thinking += said.reasoning_content ?? said.reasoning ?? "";
    for (const [place, call] of (said.tool_calls ?? []).entries()) {
      const known = (answer.calls[call.index ?? place] ??= { id: "", name: "", arguments: "" });
      known.id ||= call.id ?? "";
      known.name += call.function?.name ?? "";
      known.arguments += call.function?.arguments ?? "";
    }
    answer.finish = choice?.finish_reason ?? answer.finish;
    if (event.usage) [answer.input, answer.output] = [event.usage.prompt_tokens ?? null, event.usage.completion_tokens ?? null];
  },
};

const gemini = {
  fields: {
    max: ["generationConfig.maxOutputTokens"], temperature: ["generationConfig.temperature"], top_p: ["generationConfig.topP"],
    top_k: ["generationConfig.topK"], effort: ["generationConfig.thinkingConfig"], stop: ["generationConfig.stopSequences"],
    format: ["generationConfig.responseMimeType"], seed: ["generationConfig.seed"], presence: ["generationConfig.presencePenalty"],
    frequency: ["generationConfig.frequencyPenalty"], tools: ["tools"],
  },
  path: (model, stream) => `/v1beta/models/${pathOf(model)}:${stream ? "streamGenerateContent?alt=sse" : "generateContent"}`,
  body({ system, messages, values, tools }) {
    const contents = messages.map((message) => {
      if (message.role === "tool") {
        return { role: "user", parts: message.results.map((result) => ({ functionResponse: { name: result.name, response: { result: result.text } } })) };
      }
      if (message.role === "assistant") {
        if (message.raw?.protocol === "gemini") return { role: "model", parts: message.raw.content };
        const calls = message.calls.map((call) => ({ functionCall: { name: call.name, args: parsed(call.arguments) } }));
        return { role: "model", parts: [...(message.text ? [{ text: message.text }] : []), ...calls] };
      }
      return { role: "user", parts: [{ text: message.text }, ...message.images.map((image) => ({ inlineData: { mimeType: image.type, data: image.data } }))] };
    });
    const config = {};
    for (const [field, value] of Object.entries(values)) config[field.split(".")[1]] = value;
    if (config.stopSequences) config.stopSequences = words(config.stopSequences);
    if (config.responseMimeType) config.responseMimeType = config.responseMimeType === "json" ? "application/json" : "text/plain";
    if (config.thinkingConfig) config.thinkingConfig = { thinkingLevel: config.thinkingConfig };
    return defined({
      systemInstruction: system ? { parts: [{ text: system }] } : undefined, contents,
      tools: tools?.length ? [{ functionDeclarations: functions(tools) }] : undefined,
      generationConfig: Object.keys(config).length ? config : undefined,
    });
  },
  take(answer, event) {
    if (event.error) answer.error = event.error.message ?? String(event.error);
    const candidate = event.candidates?.[0];
    answer.raw ??= { protocol: "gemini", content: [] };
    for (const part of candidate?.content?.parts ?? []) {
      answer.raw.content.push(part);
      if (part.thought) answer.thinking += part.text ?? "";
      else answer.text += part.text ?? "";
      if (part.functionCall) {
        answer.calls.push({ id: part.functionCall.id ?? part.functionCall.name, name: part.functionCall.name, arguments: JSON.stringify(part.functionCall.args ?? {}) });
      }
    }
    answer.finish = candidate?.finishReason ?? event.promptFeedback?.blockReason ?? answer.finish;
    const usage = event.usageMetadata;
    if (usage) {
      answer.input = usage.promptTokenCount ?? answer.input;
      answer.output = (usage.candidatesTokenCount ?? 0) + (usage.thoughtsTokenCount ?? 0);
    }
  },
};

const anthropic = {
  fields: {
    max: ["max_tokens"], temperature: ["temperature"], top_p: ["top_p"], top_k: ["top_k"], effort: ["output_config.effort"],
    stop: ["stop_sequences"], format: [], seed: [], presence: [], frequency: [], tools: ["tools"],
  },
  // The protocol requires a limit.
  defaults: { max_tokens: 1024 },
  path: () => "/v1/messages",
  body({ model, system, messages, values, tools, stream }) {
    const sent = messages.map((message) => {
      if (message.role === "tool") {
        return { role: "user", content: message.results.map((result) => ({ type: "tool_result", tool_use_id: result.id, content: result.text })) };
      }
      if (message.role === "assistant") {
        if (message.raw?.protocol === "anthropic") return { role: "assistant", content: message.raw.content };
        const calls = message.calls.map((call) => ({ type: "tool_use", id: call.id, name: call.name, input: parsed(call.arguments) }));
        return { role: "assistant", content: [...(message.text ? [{ type: "text", text: message.text }] : []), ...calls] };
      }
      const images = message.images.map((image) => ({ type: "image", source: { type: "base64", media_type: image.type, data: image.data } }));
      return { role: "user", content: images.length ? [...images, { type: "text", text: message.text }] : message.text };
    });
    const { "output_config.effort": effort, stop_sequences: stop, ...plain } = { ...this.defaults, ...values };
    return defined({
      model, ...plain, system: system || undefined, messages: sent, stop_sequences: stop && words(stop),
      output_config: effort && { effort },
      tools: tools?.length ? functions(tools).map((tool) => ({ name: tool.name, description: tool.description, input_schema: tool.parameters ?? { type: "object" } })) : undefined,
      stream: stream || undefined,
    });
  },
  take(answer, event) {
    if (event.type === "error" || event.error) answer.error = event.error?.message ?? "error";
    answer.raw ??= { protocol: "anthropic", content: [] };
    const blocks = answer.raw.content;
    const begin = (block, index) => {
      blocks[index] = { ...block };
      if (block.type === "tool_use") answer.calls.push({ id: block.id, name: block.name, arguments: Object.keys(block.input ?? {}).length ? JSON.stringify(block.input) : "" });
      if (block.type === "text") answer.text += block.text ?? "";
      if (block.type === "thinking") answer.thinking += block.thinking ?? "";
    };
    if (event.type === "message") event.content?.forEach(begin);
    if (event.type === "content_block_start") begin(event.content_block, event.index);
    if (event.type === "content_block_delta") {
      const [block, delta] = [blocks[event.index], event.delta];
      if (delta.type === "text_delta") [block.text, answer.text] = [(block.text ?? "") + delta.text, answer.text + delta.text];
      if (delta.type === "thinking_delta") [block.thinking, answer.thinking] = [(block.thinking ?? "") + delta.thinking, answer.thinking + delta.thinking];
      if (delta.type === "signature_delta") block.signature = delta.signature;
      if (delta.type === "input_json_delta") answer.calls.at(-1).arguments += delta.partial_json;
    }
    if (event.type === "content_block_stop" && blocks[event.index]?.type === "tool_use") blocks[event.index].input = parsed(answer.calls.at(-1).arguments);
    answer.finish = event.delta?.stop_reason ?? event.stop_reason ?? answer.finish;
    const usage = event.usage ?? event.message?.usage;
    if (usage) {
      if (usage.input_tokens !== undefined) answer.input = usage.input_tokens + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0);
      answer.output = usage.output_tokens ?? answer.output;
    }
  },
};

const responses = {
  fields: {
    max: ["max_output_tokens"], temperature: ["temperature"], top_p: ["top_p"], top_k: [], effort: ["reasoning.effort"],
    stop: [], format: ["text.format"], seed: [], presence: [], frequency: [], tools: ["tools"],
  },
  path: () => "/v1/responses",
  body({ model, system, messages, values, tools, stream }) {
    const input = messages.flatMap((message) => {
      if (message.role === "tool") return message.results.map((result) => ({ type: "function_call_output", call_id: result.id, output: result.text }));
      if (message.role === "assistant") {
        if (message.raw?.protocol === "responses") return message.raw.content.filter(Boolean);
        const calls = message.calls.map((call) => ({ type: "function_call", call_id: call.id, name: call.name, arguments: call.arguments || "{}" }));
        return [...(message.text ? [{ role: "assistant", content: message.text }] : []), ...calls];
      }
      const images = message.images.map((image) => ({ type: "input_image", image_url: `data:${image.type};base64,${image.data}` }));
      return { role: "user", content: images.length ? [{ type: "input_text", text: message.text }, ...images] : message.text };
    });
    const { "reasoning.effort": effort, "text.format": format, ...plain } = values;
    return defined({
      model, ...plain, instructions: system || undefined, input, store: false,
      reasoning: effort && { effort, summary: "auto" },
      text: format && { format: { type: format === "json" ? "json_object" : "text" } },
      tools: tools?.length ? functions(tools).map((tool) => ({ type: "function", strict: false, ...tool })) : undefined,
      stream: stream || undefined,
    });
  },
  take(answer, event) {
    answer.raw ??= { protocol: "responses", content: [] };
    const keep = (item, index) => {
      answer.raw.content[index] = item;
      if (item.type === "function_call") answer.calls.push({ id: item.call_id, name: item.name, arguments: item.arguments });
    };
    if (event.type === "response.output_text.delta" || event.type === "response.refusal.delta") answer.text += event.delta;
    if (["response.reasoning_summary_text.delta", "response.reasoning_text.delta"].includes(event.type)) answer.thinking += event.delta;
    if (event.type === "response.output_item.done") keep(event.item, event.output_index);
    const response = event.object === "response" ? event : event.response;
    if (event.object === "response") {
      event.output.forEach(keep);
      for (const part of event.output.flatMap((item) => item.content ?? [])) answer.text += part.text ?? part.refusal ?? "";
      for (const part of event.output.flatMap((item) => item.summary ?? [])) answer.thinking += part.text ?? "";
    }
    const error = event.error ?? response?.error ?? (event.type === "error" ? event : null);
    if (error) answer.error = error.message ?? "error";
    if (["completed", "incomplete", "failed"].includes(response?.status)) answer.finish = response.incomplete_details?.reason ?? response.status;
    if (response?.usage) [answer.input, answer.output] = [response.usage.input_tokens, response.usage.output_tokens];
  },
};

export const codecs = { openai, gemini, anthropic, responses };
export const newAnswer = () => new Answer();

// The events of a response: those of a stream as they arrive, or the body as the only event. `seen` receives the raw
// text.
export async function* events(response, seen) {
  if (!(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
    const text = await response.text();
    seen(text);
    try { yield JSON.parse(text); } catch { yield { error: { message: text.slice(0, 2000) } }; }
    return;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (value) seen(value);
    kept += value ?? "";
    const found = kept.split(/\r?\n\r?\n/);
    kept = done ? "" : found.pop();
    for (const event of found) {
      const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim()).join("\n");
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
    if (done) return;
  }
}
