"""The openai SDK, on models behind each upstream protocol."""

import json

import openai
import pytest

TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    for name in ("get_weather", "get_time")
]
PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg=="


def ask(text):
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


def test_answer(chat, model):
    reply = chat.chat.completions.create(model=model, messages=ask("say: naïve café 日本語 🦊"))
    assert reply.choices[0].message.content == "naïve café 日本語 🦊"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model == model
    assert reply.usage.prompt_tokens == 11
    assert reply.usage.completion_tokens == 7
    assert reply.usage.total_tokens == 18
    assert reply._request_id.startswith("req_")


def test_stream(chat, model):
    with chat.chat.completions.stream(model=model, messages=ask("say: naïve café 日本語 🦊 and more"),
                                      stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "naïve café 日本語 🦊 and more"
    assert final.usage.total_tokens == 18


def test_stream_without_usage(chat, model):
    chunks = list(chat.chat.completions.create(model=model, messages=ask("say: hello"), stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "hello"
    assert all(c.usage is None for c in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("streamed", [False, True])
def test_three_turns_of_tools_with_parallel_calls(chat, model, streamed):
    messages = ask("please use tools")
    expected = ["get_weather:Oslo", "get_time:Bergen", "get_weather:Tromsø"]
    seen = []
    for turn in range(3):
        if streamed:
            with chat.chat.completions.stream(model=model, messages=messages, tools=TOOLS) as stream:
                for _ in stream:
                    pass
                choice = stream.get_final_completion().choices[0]
        else:
            choice = chat.chat.completions.create(model=model, messages=messages, tools=TOOLS).choices[0]
        if turn == 2:
            break
        assert choice.finish_reason == "tool_calls"
        assert len(choice.message.tool_calls) == (2, 1)[turn]
        messages.append(choice.message.model_dump(exclude_none=True, exclude={"parsed"}))
        for call in choice.message.tool_calls:
            result = f"{call.function.name}:{json.loads(call.function.arguments)['city']}"
            seen.append(result)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    assert seen == expected
    assert choice.finish_reason == "stop"
    assert choice.message.content == "results: " + " | ".join(expected)


def test_tools_survive_a_client_that_keeps_only_the_standard_members(chat, model):
    first = chat.chat.completions.create(model=model, messages=ask("please use tools"), tools=TOOLS).choices[0].message
    calls = [{"id": c.id, "type": "function", "function": {"name": c.function.name, "arguments": c.function.arguments}} for c in first.tool_calls]
    messages = ask("please use tools") + [{"role": "assistant", "content": None, "tool_calls": calls}]
    messages += [{"role": "tool", "tool_call_id": c["id"], "content": "{\"$ref\":\"x\"}"} for c in calls]
    again = chat.chat.completions.create(model=model, messages=messages, tools=TOOLS)
    assert again.choices[0].finish_reason == "tool_calls"


def test_image(chat, model):
    content = [{"type": "text", "text": "what is this"}, {"type": "image_url", "image_url": {"url": PNG}}]
    reply = chat.chat.completions.create(model=model, messages=[{"role": "user", "content": content}])
    assert "(1 media)" in reply.choices[0].message.content


def test_structured_output(chat, model):
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"], "additionalProperties": False}
    reply = chat.chat.completions.create(
        model=model, messages=ask("hello"),
        response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}})
    assert json.loads(reply.choices[0].message.content) == {"answer": "hello"}


def test_reasoning(chat, model):
    reply = chat.chat.completions.create(model=model, messages=ask("say: 4"), reasoning_effort="low")
    assert reply.choices[0].message.content == "4"
    assert reply.choices[0].message.model_extra["reasoning_content"] == "let me think"


def test_embeddings(chat):
    reply = chat.embeddings.create(model="embed-model", input=["a", "b"], encoding_format="float")
    assert [item.embedding for item in reply.data] == [[0.25, -0.5], [0.25, -0.5]]


def test_models(chat):
    names = [m.id for m in chat.models.list()]
    assert names == sorted(names)
    assert {"chat-model", "native-model", "messages-model"} <= set(names)
    assert chat.models.retrieve("chat-model").id == "chat-model"


@pytest.mark.parametrize("status, kind", [(400, openai.BadRequestError), (429, openai.RateLimitError), (500, openai.InternalServerError)])
def test_upstream_errors(chat, model, status, kind):
    with pytest.raises(kind) as caught:
        chat.chat.completions.create(model=model, messages=ask(f"fail: {status}"))
    assert caught.value.body["code"] or status == 400
    if status == 400:
        assert "failing as requested" in str(caught.value)


def test_refusals(chat, base):
    with pytest.raises(openai.NotFoundError) as caught:
        chat.chat.completions.create(model="no-such-model", messages=ask("hi"))
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.InternalServerError) as caught:
        chat.chat.completions.create(model="unavailable-model", messages=ask("hi"))
    assert caught.value.code == "no_available_accounts"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=base + "/v1", api_key="wrong", max_retries=0).models.list()
