"""The relay that a script's mlflow talks to: what it answers by itself, and whom it lets in."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shunter.node import mlflow_words as words
from shunter.node.mlflow_batch import quick_batch
from shunter.node.mlflow_relay import MlflowRelay
from shunter.node.variables import past_proxies

RUN = "ab" * 16
API = "/api/2.0/mlflow/"


class NoServer:
    """Stands for the relay to the server: nothing ever comes home."""

    def flush(self, until: float) -> bool:
        return False


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[MlflowRelay]:
    job = {"id": RUN + ".1.0", "run_id": RUN, "run_name": "try", "experiment": "e", "home": {"token": "secret"}}
    found = MlflowRelay(str(tmp_path), job, NoServer())  # type: ignore[arg-type]
    found.open_up()
    yield found
    found.close()


@pytest.fixture
def connection(relay: MlflowRelay) -> Iterator[http.client.HTTPConnection]:
    found = http.client.HTTPConnection("127.0.0.1", relay.listener.port, timeout=60)
    yield found
    found.close()


def call(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    connection.request(method, path if path.startswith("/") else API + path, data, {"Authorization": "Bearer secret"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def lines(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "metrics").read_text().splitlines()]


def test_what_is_logged_is_in_the_spool_when_it_is_answered(connection: http.client.HTTPConnection, tmp_path: Path) -> None:
    metric = {"run_id": RUN, "key": "loss", "value": 0.5, "timestamp": 1700000000123, "step": "7"}
    assert call(connection, "POST", "runs/log-metric", metric) == (200, {})
    batch = {"run_id": RUN, "metrics": [{"key": "x", "value": v, "timestamp": 1, "step": 0} for v in ("NaN", "Infinity", 2)]}
    assert call(connection, "POST", "runs/log-batch", batch)[0] == 200
    found = lines(tmp_path)
    assert found[0] == {"n": "loss", "v": 0.5, "t": 1700000000.123, "s": 7}
    assert [repr(line["v"]) for line in found[1:]] == ["nan", "inf", "2.0"]


def test_a_batch_is_kept_the_same_whichever_way_it_is_read(connection: http.client.HTTPConnection, tmp_path: Path) -> None:
    values = [0.5, -1e-05, 1e300, 3.0, 123456.789e10]
    points = [{"key": "x y", "value": v, "timestamp": 1700000000120 + i, "step": i - 2} for i, v in enumerate(values)]
    batch = json.dumps({"run_id": RUN, "metrics": points}).encode()
    assert quick_batch(batch, RUN) is not None
    assert call(connection, "POST", "runs/log-batch", batch) == (200, {})
    quick = lines(tmp_path)
    assert call(connection, "POST", "runs/log-batch", {"metrics": points, "run_id": RUN}) == (200, {})
    assert lines(tmp_path)[len(quick) :] == quick
    assert [line["v"] for line in quick] == values
    assert quick[1] == {"n": "x y", "v": -1e-05, "t": 1700000000.121, "s": -1}


@pytest.mark.parametrize(
    "change",
    [
        {"key": 'a"b'}, {"key": "a\nb"}, {"key": "ä"}, {"value": "NaN"}, {"value": 5}, {"step": "7"}, {"timestamp": 12},
        {"model_id": "m-1"}, {"key": "a\\"}, {"value": None}, {"step": 10**20},
    ],
)  # fmt: skip
def test_a_batch_that_is_out_of_the_usual_is_read_the_long_way(change: dict[str, Any]) -> None:
    point = {"key": "x", "value": 0.5, "timestamp": 1700000000120, "step": 1}
    usual = json.dumps({"run_id": RUN, "metrics": [point, point]})
    assert quick_batch(usual.encode(), RUN) is not None
    assert quick_batch(json.dumps({"run_id": RUN, "metrics": [point, {**point, **change}]}).encode(), RUN) is None
    others: list[dict[str, Any]] = [{"tags": []}, {"params": [{"key": "a", "value": "b"}]}]
    for more in others:
        assert quick_batch(json.dumps({"run_id": RUN, "metrics": [point], **more}).encode(), RUN) is None
    for bad in (usual[:-1], usual + "x", usual.replace("[{", "[x{"), usual.replace("},", "} 1,"), "", "[]", "{}"):
        assert quick_batch(bad.encode(), RUN) is None, bad


def test_a_batch_of_a_nested_run_says_so(connection: http.client.HTTPConnection, tmp_path: Path) -> None:
    _, made = call(connection, "POST", "runs/create", {"run_name": "inner"})
    inner = made["run"]["info"]["run_id"]
    batch = {"run_id": inner, "metrics": [{"key": "x", "value": 0.5, "timestamp": 1700000000120, "step": 1}]}
    assert call(connection, "POST", "runs/log-batch", batch) == (200, {})
    assert lines(tmp_path)[1] == {"n": "x", "v": 0.5, "t": 1700000000.12, "s": 1, "r": inner}
    other = {**batch, "run_id": "cd" * 16}
    assert call(connection, "POST", "runs/log-batch", other)[0] == 503  # it goes on to the server, which refuses it


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"NO_PROXY": "127.0.0.1"}),
        ({"no_proxy": "here"}, {"no_proxy": "here,127.0.0.1"}),
        ({"NO_PROXY": "*"}, {"NO_PROXY": "*"}),
        ({"NO_PROXY": "a", "no_proxy": "127.0.0.1"}, {"NO_PROXY": "a,127.0.0.1", "no_proxy": "127.0.0.1"}),
    ],
)
def test_no_proxy_stands_between_a_script_and_its_relay(before: dict[str, str], after: dict[str, str]) -> None:
    past_proxies(before)
    assert before == after


def test_points_that_are_logged_again_for_a_model_are_there_once(connection: http.client.HTTPConnection, tmp_path: Path) -> None:
    point = {"key": "loss", "value": 0.5, "timestamp": 1700000000123, "step": 7}
    call(connection, "POST", "runs/log-batch", {"run_id": RUN, "metrics": [point]})
    again = [{**point, "model_id": "m-1"}, {**point, "step": 8, "model_id": "m-1"}]
    assert call(connection, "POST", "runs/log-batch", {"run_id": RUN, "metrics": again})[0] == 503  # it goes on to the server
    assert [line["s"] for line in lines(tmp_path)] == [7, 8]


def test_a_run_shows_what_was_logged_also_by_others(connection: http.client.HTTPConnection, tmp_path: Path) -> None:
    call(connection, "POST", "runs/log-parameter", {"run_id": RUN, "key": "lr", "value": "1"})
    with (tmp_path / "metrics").open("a") as file:
        file.write('{"n": "acc", "v": 0.25, "t": 5.0, "s": 3}\nnot a line\n{"k": "tags", "v": {"a": "b"}, "t": 6.0}\n')
    status, found = call(connection, "GET", "runs/get?run_id=" + RUN)
    data = found["run"]["data"]
    assert status == 200
    assert data["params"] == [{"key": "lr", "value": "1"}]
    assert data["metrics"] == [{"key": "acc", "value": 0.25, "timestamp": 5000, "step": 3}]
    assert {"key": "a", "value": "b"} in data["tags"]
    assert found["run"]["info"]["artifact_uri"] == words.artifact_uri(RUN)


def test_a_parameter_is_written_once(connection: http.client.HTTPConnection) -> None:
    for value, status in (("1", 200), ("1", 200), ("2", 400)):
        assert call(connection, "POST", "runs/log-parameter", {"run_id": RUN, "key": "lr", "value": value})[0] == status
    both = {"run_id": RUN, "params": [{"key": "p", "value": "1"}, {"key": "p", "value": "2"}]}
    status, found = call(connection, "POST", "runs/log-batch", both)
    assert (status, found["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


def test_a_nested_run_lives_and_ends_by_its_script(connection: http.client.HTTPConnection, tmp_path: Path) -> None:
    tags = [{"key": "mlflow.parentRunId", "value": RUN}]
    _, made = call(connection, "POST", "runs/create", {"run_name": "inner", "tags": tags})
    inner = made["run"]["info"]["run_id"]
    call(connection, "POST", "runs/log-metric", {"run_id": inner, "key": "m", "value": 1, "timestamp": 1})
    _, found = call(connection, "POST", "runs/update", {"run_id": inner, "status": "FINISHED", "end_time": 9000})
    assert found["run_info"]["status"] == "FINISHED"
    assert [(line.get("k"), line.get("r")) for line in lines(tmp_path)] == [("child", inner), (None, inner), ("complete", inner)]
    stolen = [{"key": "mlflow.parentRunId", "value": "cd" * 16}]
    assert call(connection, "POST", "runs/create", {"tags": stolen})[0] == 403


def test_the_scripts_own_run_is_not_ended_by_its_word(connection: http.client.HTTPConnection, tmp_path: Path) -> None:
    call(connection, "POST", "runs/update", {"run_id": RUN, "status": "FINISHED", "end_time": 5})
    assert call(connection, "GET", "runs/get?run_id=" + RUN)[1]["run"]["info"]["status"] == "FINISHED"
    assert lines(tmp_path) == []


def test_an_artifact_becomes_an_upload_of_its_run_and_stays_in_its_folder(
    connection: http.client.HTTPConnection, tmp_path: Path
) -> None:
    base = "/api/2.0/mlflow-artifacts/artifacts/" + words.run_folder(RUN)
    assert call(connection, "PUT", base + "/a%20b/c%C3%A4.txt", b"x" * 3_000_000)[0] == 200
    assert (tmp_path / "uploads/a b/cä.txt").stat().st_size == 3_000_000
    for bad in ("/../../x", "/a/%2e%2e/x", "/a%5Cb", "//x"):
        assert call(connection, "PUT", base + bad, b"x")[0] in (400, 503), bad
    assert [p.name for p in (tmp_path / "uploads").rglob("*") if p.is_file()] == ["cä.txt"]


def test_only_the_runs_token_is_let_in(connection: http.client.HTTPConnection, tmp_path: Path) -> None:
    for token in ("", "wrong", "sécret"):
        body = {"run_id": RUN, "key": "k", "value": 1}
        connection.request("POST", API + "runs/log-metric", json.dumps(body), {"Authorization": f"Bearer {token}".encode()})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 401
    assert lines(tmp_path) == []


def test_what_makes_no_sense_is_refused_and_the_next_call_is_answered(connection: http.client.HTTPConnection) -> None:
    for body in (b"{", b"[]", b'{"run_id": "%s"}' % RUN.encode(), b'{"run_id": "%s", "key": "k", "value": "x"}' % RUN.encode()):
        assert call(connection, "POST", "runs/log-metric", body)[0] == 400
    assert call(connection, "POST", "runs/set-tag", {"run_id": RUN, "key": "k", "value": "v"})[0] == 200


def test_a_launcher_that_adopts_a_run_answers_where_its_script_believes_it_to_be(relay: MlflowRelay, tmp_path: Path) -> None:
    relay.close()
    after = MlflowRelay(str(tmp_path), relay.job, relay.relay, relay.listener.port)
    assert after.url == relay.url
    after.close()


def test_an_experiments_id_is_the_same_everywhere_and_within_mlflows_range() -> None:
    assert words.experiment_id("default", "Default") == "0"
    assert words.experiment_id("default", "a") != words.experiment_id("team", "a")
    assert all((1 << 30) <= int(words.experiment_id("w", str(i))) < (1 << 31) for i in range(50))
