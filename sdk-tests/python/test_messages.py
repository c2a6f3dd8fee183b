"""The Anthropic SDK, on models behind each upstream protocol."""

import json

import anthropic
import pytest
from anthropic import beta_tool

from conftest import KEY

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg=="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": name, "description": name, "input_schema": SCHEMA} for name in ("get_weather", "get_time")]


def user(content):
    return [{"role": "user", "content": content}]


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def test_answer(messages, model):
    reply = messages.messages.create(model=model, max_tokens=50, system="Be brief.", messages=user("say: naïve café 日本語 🦊"))
    assert text_of(reply) == "naïve café 日本語 🦊"
    assert (reply.type, reply.role, reply.model, reply.stop_reason) == ("message", "assistant", model, "end_turn")
    assert reply.id.startswith("msg_") and reply._request_id.startswith("req_")
    # Two of eleven were read from the cache.
    usage = reply.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (9, 2, 7)


def test_stream(messages, model):
    with messages.messages.stream(model=model, max_tokens=50, messages=user("say: naïve café 日本語 🦊 and more")) as stream:
        pieces = list(stream.text_stream)
        reply = stream.get_final_message()
    assert "".join(pieces) == text_of(reply) == "naïve café 日本語 🦊 and more"
    assert len(pieces) > 1
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.stop_reason) == (9, 7, "end_turn")


@pytest.mark.parametrize("streamed", [False, True])
def test_three_turns_of_tools_with_parallel_calls(messages, model, streamed):
    history = user("please use tools")
    expected = ["get_weather:Oslo", "get_time:Bergen", "get_weather:Tromsø"]
    seen = []
    for turn in range(3):
        request = {"model": model, "max_tokens": 100, "messages": history, "tools": TOOLS}
        if streamed:
            with messages.messages.stream(**request) as stream:
                reply = stream.get_final_message()
        else:
            reply = messages.messages.create(**request)
        calls = [block for block in reply.content if block.type == "tool_use"]
        if turn == 2:
            break
        assert (len(calls), reply.stop_reason) == ((2, 1)[turn], "tool_use")
        results = []
        for call in calls:
            result = f"{call.name}:{call.input['city']}"
            seen.append(result)
            results.append({"type": "tool_result", "tool_use_id": call.id, "content": result})
        history = [*history, {"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]
    assert seen == expected
    assert text_of(reply) == "results: " + " | ".join(expected)


# To an upstream of the protocol the request goes as it is.
@pytest.mark.parametrize("model", ["chat-model", "native-model"])
def test_tool_runner_without_a_thread(messages, model):
    """Left alone it asks for a conversation that the server keeps, and goes on without one when that is refused by code."""
    asked = []

    @beta_tool
    def get_weather(city: str) -> str:
        """Current weather of a city.

        Args:
            city: City name
        """
        asked.append(city)
        return f"get_weather:{city}"

    @beta_tool
    def get_time(city: str) -> str:
        """Current time in a city.

        Args:
            city: City name
        """
        asked.append(city)
        return f"get_time:{city}"

    runner = messages.beta.messages.tool_runner(
        model=model, max_tokens=100, messages=user("please use tools"), tools=[get_weather, get_time])
    assert text_of(runner.until_done()).startswith("results: ")
    assert asked == ["Oslo", "Bergen", "Tromsø"]


def test_image(messages, model):
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    reply = messages.messages.create(
        model=model, max_tokens=50, messages=user([{"type": "text", "text": "what is this"}, picture]))
    assert "(1 media)" in text_of(reply)


def test_structured_output(messages, model):
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"], "additionalProperties": False}
    config = {"format": {"type": "json_schema", "schema": schema}}
    reply = messages.messages.create(model=model, max_tokens=50, messages=user("hello"), output_config=config)
    assert json.loads(text_of(reply)) == {"answer": "hello"}


@pytest.mark.parametrize("streamed", [False, True])
def test_thoughts_come_back_with_the_history(messages, model, streamed):
    request = {"model": model, "max_tokens": 4000, "thinking": {"type": "adaptive", "display": "summarized"},
               "output_config": {"effort": "low"}}
    if streamed:
        with messages.messages.stream(messages=user("say: 4"), **request) as stream:
            reply = stream.get_final_message()
    else:
        reply = messages.messages.create(messages=user("say: 4"), **request)
    assert [block.type for block in reply.content] == ["thinking", "text"]
    assert (reply.content[0].thinking, text_of(reply)) == ("let me think", "4") and reply.content[0].signature
    history = [*user("say: 4"), {"role": "assistant", "content": reply.content}, *user("say: 5")]
    assert text_of(messages.messages.create(messages=history, **request)) == "5"


def test_count_tokens(messages, model):
    assert messages.messages.count_tokens(model=model, messages=user("hello world"), tools=TOOLS).input_tokens > 0


def test_models(messages):
    names = [model.id for model in messages.models.list(limit=2)]
    assert {"chat-model", "native-model", "messages-model"} <= set(names)
    model = messages.models.retrieve("chat-model")
    assert (model.type, model.id) == ("model", "chat-model") and model.created_at


@pytest.mark.parametrize("status", [400, 429, 500])
def test_upstream_errors(messages, model, status):
    with pytest.raises(anthropic.APIStatusError) as caught:
        messages.messages.create(model=model, max_tokens=50, messages=user(f"fail: {status}"))
    expected = {400: (400, "invalid_request_error"), 429: (429, "rate_limit_error"), 500: (502, "api_error")}[status]
    assert (caught.value.status_code, caught.value.body["error"]["type"]) == expected
    assert caught.value.request_id == caught.value.body["request_id"]


def test_refusals(base, messages):
    with pytest.raises(anthropic.NotFoundError) as caught:
        messages.messages.create(model="no-such-model", max_tokens=50, messages=user("hi"))
    assert caught.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError) as caught:
        servers = [{"type": "url", "url": "https://example.com", "name": "s"}]
        messages.messages.create(model="chat-model", max_tokens=50, messages=user("hi"), extra_body={"mcp_servers": servers})
    assert "'mcp_servers'" in caught.value.body["error"]["message"]
    for how in ({"api_key": KEY + "x"}, {"api_key": None, "auth_token": KEY + "x"}):
        with pytest.raises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=base, **how).models.list()
