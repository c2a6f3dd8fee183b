"""The Responses API of the OpenAI SDK, on models behind each upstream protocol. Nothing is stored."""

import json

import openai
import pydantic
import pytest

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg=="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "name": name, "description": name, "parameters": SCHEMA, "strict": False}
         for name in ("get_weather", "get_time")]


def ask(chat, streamed, **request):
    """The whole response, streamed or not."""
    request = {"store": False, **request}
    if not streamed:
        return chat.responses.create(**request)
    with chat.responses.stream(**request) as stream:
        kinds = [event.type for event in stream]
        assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
        return stream.get_final_response()


@pytest.mark.parametrize("streamed", [False, True])
def test_answer(chat, model, streamed):
    reply = ask(chat, streamed, model=model, instructions="Be brief.", input="say: naïve café 日本語 🦊")
    assert reply.output_text == "naïve café 日本語 🦊"
    assert (reply.object, reply.status, reply.model, reply.instructions) == ("response", "completed", model, "Be brief.")
    assert reply.id.startswith("resp_") and reply.store is False
    usage = reply.usage
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens) == (11, 2, 7)


@pytest.mark.parametrize("streamed", [False, True])
def test_three_turns_of_tools_with_parallel_calls(chat, model, streamed):
    history = [{"role": "user", "content": "please use tools"}]
    expected = ["get_weather:Oslo", "get_time:Bergen", "get_weather:Tromsø"]
    seen = []
    for turn in range(3):
        reply = ask(chat, streamed, model=model, input=history, tools=TOOLS)
        calls = [item for item in reply.output if item.type == "function_call"]
        if turn == 2:
            break
        assert len(calls) == (2, 1)[turn]
        history += reply.output
        for call in calls:
            result = f"{call.name}:{json.loads(call.arguments)['city']}"
            seen.append(result)
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
    assert seen == expected
    assert reply.output_text == "results: " + " | ".join(expected)


def test_image(chat, model):
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}
    content = [{"type": "input_text", "text": "what is this"}, picture]
    assert "(1 media)" in ask(chat, False, model=model, input=[{"role": "user", "content": content}]).output_text


def test_structured_output(chat, model):
    class Answer(pydantic.BaseModel):
        answer: str

    reply = chat.responses.parse(model=model, input="hello", text_format=Answer, store=False)
    assert reply.output_parsed == Answer(answer="hello")


@pytest.mark.parametrize("status", [400, 429, 500])
def test_upstream_errors(chat, model, status):
    with pytest.raises(openai.APIStatusError) as caught:
        ask(chat, False, model=model, input=f"fail: {status}")
    assert caught.value.status_code == {400: 400, 429: 429, 500: 502}[status]
    assert caught.value.request_id.startswith("req_") and caught.value.body["message"]


def test_what_would_be_stored_is_refused(chat, model):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(chat, False, model=model, input="hi", previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError) as caught:
        chat.responses.retrieve("resp_1")
    assert (caught.value.code, "'store': false" in caught.value.body["message"]) == ("response_not_found", True)


def test_refusals(chat):
    with pytest.raises(openai.NotFoundError) as caught:
        ask(chat, False, model="no-such-model", input="hi")
    assert caught.value.code == "model_not_found"
