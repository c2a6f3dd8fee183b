"""Fixtures: the scripted provider, a collector and the gateway, started once per session, and the official clients."""

import gzip
import http.server
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import threading

import anthropic
import openai
import pytest
from google import genai

KEY = "sdk-tests-key-0123456789abcdef"
MODELS = ["chat-model", "native-model", "messages-model", "responses-model"]
CATALOG = pathlib.Path(__file__).resolve().parent.parent / "catalog.toml"


class Collector(http.server.BaseHTTPRequestHandler):
    """Keeps what it receives, by path."""

    received = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers["content-encoding"] == "gzip":
            body = gzip.decompress(body)
        self.received.append((self.path, self.headers["content-type"], body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


def free_address():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


@pytest.fixture(scope="session")
def collector():
    """Where OTLP over HTTP goes: to a real collector, which passes on to the one above what it could read, or to that at once."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    program = os.environ.get("COLLECTOR")
    if program:
        receiver = free_address()
        arguments = ["--otlp-http-endpoint", receiver, "--otlp-grpc-endpoint", free_address(), "--disable-batching"]
        arguments += ["--exporter", "otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", endpoint]
        process = subprocess.Popen([program, "start", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        yield f"http://{receiver}"
        process.terminate()
        process.wait(timeout=30)
    else:
        yield endpoint
    server.shutdown()


@pytest.fixture(scope="session")
def base(collector):
    """The gateway's address."""
    provider = subprocess.Popen([os.environ["PROVIDER"]], stdout=subprocess.PIPE, text=True)
    address = provider.stdout.readline().strip()
    with tempfile.TemporaryDirectory() as folder:
        catalog = pathlib.Path(folder) / "catalog.toml"
        catalog.write_text(CATALOG.read_text().replace("PROVIDER", address))
        log = open(pathlib.Path(folder) / "log", "w+")
        gateway = subprocess.Popen(
            [os.environ["TOLLGATE"], "serve", "--json", "--listen", "127.0.0.1:0", "--catalog", catalog, "--data", folder + "/data"],
            stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder, env=os.environ | {
                "TOLLGATE_TELEMETRY__OTLP_ENDPOINT": collector,
                "TOLLGATE_TELEMETRY__METRICS_INTERVAL_MS": "500",
            },
        )
        try:
            line = gateway.stdout.readline()
            assert line, pathlib.Path(log.name).read_text()
            yield "http://" + json.loads(line)["address"]
        finally:
            gateway.terminate()
            assert gateway.wait(timeout=30) == 0, pathlib.Path(log.name).read_text()
            provider.kill()
            provider.wait()


@pytest.fixture(scope="session")
def chat(base):
    """The official chat completions client; without retries, so that every error is visible."""
    return openai.OpenAI(base_url=base + "/v1", api_key=KEY, max_retries=0)


@pytest.fixture(scope="session", params=["v1", "v1beta"])
def native(base, request):
    """The official native client, with its default API version and the older one."""
    return genai.Client(api_key=KEY, http_options={"base_url": base, "api_version": request.param})


@pytest.fixture(scope="session")
def messages(base):
    """The official Messages client; without retries."""
    return anthropic.Anthropic(base_url=base, api_key=KEY, max_retries=0)


@pytest.fixture(params=MODELS)
def model(request):
    return request.param
