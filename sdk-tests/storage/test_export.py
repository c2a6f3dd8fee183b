"""Days of usage records, exported to a real server of S3's API (moto), and read with DuckDB."""

import datetime
import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.request

import boto3
import duckdb
import pytest

BUCKET = "acme-records"
REGION = "eu-central-1"
NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def storage():
    """The client of a server with one bucket."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    program = pathlib.Path(os.sys.executable).with_name("moto_server")
    server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = boto3.client(
        "s3", endpoint_url=address, region_name=REGION, aws_access_key_id="AKTEST", aws_secret_access_key="test-secret"
    )
    for _ in range(100):
        try:
            client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
            break
        except Exception:
            time.sleep(0.2)
    yield client
    server.terminate()
    server.wait(timeout=30)


def test_days_are_exported_and_read(storage, tmp_path):
    clock = tmp_path / "clock"

    def at(days):
        clock.write_text(str(int((NOON + datetime.timedelta(days=days)).timestamp() - time.time())))
        time.sleep(0.2)

    at(0)
    environment = os.environ | {
        "GATEWAY_TEST_CLOCK": str(clock),
        "TOLLGATE_EXPORT__ENDPOINT": storage.meta.endpoint_url,
        "TOLLGATE_EXPORT__REGION": REGION,
        "TOLLGATE_EXPORT__BUCKET": BUCKET,
        "TOLLGATE_EXPORT__PREFIX": "tollgate/usage",
        "TOLLGATE_EXPORT__ACCESS_KEY_ID": "AKTEST",
        "TOLLGATE_EXPORT__SECRET_ACCESS_KEY": "test-secret",
        "TOLLGATE_EXPORT__PRIVATE_NETWORK": "true",
    }

    def tollgate(*arguments, **changed):
        command = [os.environ["TOLLGATE"], "--data", str(tmp_path / "data"), *arguments]
        return subprocess.run(command, env=environment | changed, cwd=tmp_path, capture_output=True, text=True)

    gateway = subprocess.Popen(
        [os.environ["TOLLGATE"], "serve", "--json", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")],
        stdout=subprocess.PIPE, stderr=open(tmp_path / "log", "w"), text=True, cwd=tmp_path, env=environment,
    )
    try:
        started = json.loads(gateway.stdout.readline())
        for day in range(3):
            at(day)
            for _ in range(day + 1):
                request = urllib.request.Request(
                    f"http://{started['address']}/v1/chat/completions",
                    json.dumps({"model": "echo", "messages": [{"role": "user", "content": "hello"}]}).encode(),
                    {"authorization": f"Bearer {started['key']}", "content-type": "application/json", "x-tollgate-tags": "project=web"},
                )
                assert urllib.request.urlopen(request).status == 200
        time.sleep(1)
        doctor = tollgate("doctor").stdout
        assert "s3://acme-records/tollgate/usage takes objects" in doctor, doctor
        missing = tollgate("doctor", TOLLGATE_EXPORT__BUCKET="another").stdout
        assert "404 NoSuchBucket" in missing and "make the bucket" in missing, missing
        uploaded = tollgate("usage", "upload", "--json")
        assert uploaded.returncode == 0, uploaded.stderr
        lines = tollgate("usage", "export", "--format", "jsonl").stdout.splitlines()
    finally:
        gateway.terminate()
        assert gateway.wait(timeout=30) == 0, (tmp_path / "log").read_text()

    keys = [item["Key"] for item in storage.list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert keys == [f"tollgate/usage/date=2026-03-0{day}/part-00000.parquet" for day in (1, 2)]
    for key in keys:
        file = tmp_path / "files" / key
        file.parent.mkdir(parents=True)
        file.write_bytes(storage.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    read = f"read_parquet('{tmp_path}/files/tollgate/usage/*/*.parquet', hive_partitioning = true)"
    days = duckdb.sql(f"SELECT date, count(*), sum(sale), min(tags['project']) FROM {read} GROUP BY ALL ORDER BY ALL").fetchall()
    assert [(str(date), count, project) for date, count, _, project in days] == [("2026-03-01", 1, "web"), ("2026-03-02", 2, "web")]
    expected = sorted(record["id"] for record in map(json.loads, lines) if record["at"] < "2026-03-03")
    assert [row[0] for row in duckdb.sql(f"SELECT id FROM {read} ORDER BY id").fetchall()] == expected
