"""The google-genai SDK, on models behind each upstream protocol."""

import base64
import json

import pytest
from google.genai import errors, types

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg==")


def tools():
    schema = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}
    return [types.Tool(function_declarations=[
        types.FunctionDeclaration(name=name, description=name, parameters=schema) for name in ("get_weather", "get_time")])]


def test_answer(native, model):
    reply = native.models.generate_content(model=model, contents="say: naïve café 日本語 🦊", config={"system_instruction": "Be brief."})
    assert reply.text == "naïve café 日本語 🦊"
    assert reply.candidates[0].finish_reason == types.FinishReason.STOP
    assert reply.usage_metadata.prompt_token_count == 11
    assert reply.usage_metadata.candidates_token_count == 7
    assert reply.usage_metadata.total_token_count == 18


def test_stream(native, model):
    chunks = list(native.models.generate_content_stream(model=model, contents="say: naïve café 日本語 🦊 and more"))
    assert "".join(c.text or "" for c in chunks) == "naïve café 日本語 🦊 and more"
    assert len(chunks) > 1
    assert chunks[-1].candidates[0].finish_reason == types.FinishReason.STOP
    assert chunks[-1].usage_metadata.total_token_count == 18


@pytest.mark.parametrize("streamed", [False, True])
def test_three_turns_of_tools_with_parallel_calls(native, model, streamed):
    contents = [types.Content(role="user", parts=[types.Part(text="please use tools")])]
    config = types.GenerateContentConfig(tools=tools(), automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True))
    expected = ["get_weather:Oslo", "get_time:Bergen", "get_weather:Tromsø"]
    seen = []
    for turn in range(3):
        if streamed:
            parts = [part for chunk in native.models.generate_content_stream(model=model, contents=contents, config=config)
                     for part in (chunk.candidates[0].content.parts or [])]
        else:
            parts = native.models.generate_content(model=model, contents=contents, config=config).candidates[0].content.parts
        calls = [part.function_call for part in parts if part.function_call]
        if turn == 2:
            break
        assert len(calls) == (2, 1)[turn]
        contents.append(types.Content(role="model", parts=parts))
        results = []
        for call in calls:
            result = f"{call.name}:{call.args['city']}"
            seen.append(result)
            results.append(types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"output": result})))
        contents.append(types.Content(role="user", parts=results))
    assert seen == expected
    assert "".join(part.text or "" for part in parts) == "results: " + " | ".join(expected)


def test_image(native, model):
    reply = native.models.generate_content(model=model, contents=["what is this", types.Part.from_bytes(data=PNG, mime_type="image/png")])
    assert "(1 media)" in reply.text


def test_structured_output(native, model):
    schema = {"type": "OBJECT", "properties": {"answer": {"type": "STRING"}}, "required": ["answer"]}
    reply = native.models.generate_content(
        model=model, contents="hello", config={"response_mime_type": "application/json", "response_schema": schema})
    assert json.loads(reply.text) == {"answer": "hello"}


def test_thoughts(native, model):
    config = types.GenerateContentConfig(thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_level="LOW"))
    reply = native.models.generate_content(model=model, contents="say: 4", config=config)
    assert reply.text == "4"
    assert [part.text for part in reply.candidates[0].content.parts if part.thought] == ["let me think"]


def test_count_tokens(native, model):
    assert native.models.count_tokens(model=model, contents="hello world").total_tokens > 0


def test_embeddings(native):
    reply = native.models.embed_content(model="embed-native-model", contents=["a", "b"])
    assert [item.values for item in reply.embeddings] == [[0.25, -0.5], [0.25, -0.5]]


def test_models(native):
    names = [m.name for m in native.models.list(config={"page_size": 2})]
    assert {"models/chat-model", "models/native-model", "models/messages-model"} <= set(names)
    assert native.models.get(model="chat-model").name == "models/chat-model"


@pytest.mark.parametrize("status", [400, 429, 500])
def test_upstream_errors(native, model, status):
    with pytest.raises(errors.APIError) as caught:
        native.models.generate_content(model=model, contents=f"fail: {status}")
    assert caught.value.code == {400: 400, 429: 429, 500: 502}[status]
    assert caught.value.details["error"]["details"][0]["reason"].startswith("UPSTREAM_")


def test_refusals(native):
    with pytest.raises(errors.ClientError) as caught:
        native.models.generate_content(model="no-such-model", contents="hi")
    assert caught.value.code == 404
    assert caught.value.status == "NOT_FOUND"
