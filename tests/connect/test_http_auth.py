# SPDX-License-Identifier: Apache-2.0
"""Who calls: what a server is shown, and what happens when it wants something else."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pyarrow as pa
import pytest
import requests

import sparkawait as sa
from tests.support.batches import doubled, inputs, lookup, ok, rows, serve
from tests.support.nginx import Nginx
from tests.support.scripted_server import Answer, Request

CLIENT = sa.http.Client(proxy=False)
FOUND = (200, {}, b'{"v": 7}')
REFUSED = (401, {}, b"no")


def get(url: str, **options: Any) -> Any:
    return sa.http.get(f"{url}/{{x}}", "v bigint", client=CLIENT, **options)


def authorization(request: Request) -> str:
    return request.headers.get("authorization", "")


def halves(at_half: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """1 500 rows; the function is called in the middle of them."""
    for start in range(0, 1500, 125):
        if start == 750:
            at_half()
        yield pa.record_batch({"x": range(start, start + 125)})


def values(function: Any, batches: Iterator[pa.RecordBatch], **options: Any) -> list[int]:
    out = sa.arrow.ordered_wait(batches, function, timeout="25s", **options)
    return [it for batch in out for it in batch.column("v").to_pylist()]


def test_a_user_and_a_token_are_shown_as_httpx_and_requests_show_them(monkeypatch):
    monkeypatch.setenv("TEST_PASSWORD", "pä{}:ss")
    with serve(lambda *_: FOUND) as server:
        password = sa.secret("TEST_PASSWORD")
        rows(get(server.url, auth=sa.http.basic("Jö", password)), [1])
        rows(get(server.url, auth=sa.http.bearer(password)), [1])

    basic, bearer = map(authorization, server.requests)
    sent = httpx.Request("GET", "http://host")
    flow = httpx.BasicAuth("Jö", "pä{}:ss").auth_flow(sent)
    assert next(flow).headers["Authorization"] == basic
    other = requests.Request("GET", "http://host", auth=("Jö".encode(), "pä{}:ss".encode()))
    assert other.prepare().headers["Authorization"] == basic
    assert bearer.encode("latin-1").decode() == "Bearer pä{}:ss"


@pytest.mark.parametrize("place", [pytest.param("auth", marks=pytest.mark.nightly), "header"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_token_of_a_file_that_changes_in_the_middle_of_a_task_loses_no_row(
    tmp_path: Path, place: str, method: str
) -> None:
    file, valid, refused = tmp_path / "token", ["Bearer one"], []
    file.write_text("one")

    def reply(request: Request, _: int) -> Answer:
        if authorization(request) == valid[0]:
            return FOUND
        refused.append(request)
        return REFUSED

    def at_half() -> None:
        file.write_text("two")
        valid[0] = "Bearer two"

    secret = sa.secret(file=str(file))
    headers = {"Authorization": sa.secret(file=str(file), prefix="Bearer ")}
    who = {"auth": sa.http.bearer(secret)} if place == "auth" else {"headers": headers}
    with serve(reply) as server:
        url = f"{server.url}/{{x}}"
        function = sa.http.request(method, url, "v bigint", client=CLIENT, **who)
        assert values(function, halves(at_half), retry=0, max_concurrency=40) == [7] * 1500

    # Those that were on their way, and no others.
    assert 0 < len(refused) <= 40
    assert len(server.requests) == 1500 + len(refused)


def test_a_request_for_many_rows_is_sent_once_more_with_the_new_token(tmp_path: Path) -> None:
    file, valid = tmp_path / "token", ["Bearer one"]
    file.write_text("one")

    def reply(request: Request, _: int) -> Answer:
        is_known = authorization(request) == valid[0]
        return ok(doubled(inputs(request))) if is_known else REFUSED

    def at_half() -> None:
        file.write_text("two")
        valid[0] = "Bearer two"

    with serve(reply) as server:
        function = lookup(server, auth=sa.http.bearer(sa.secret(file=str(file))))
        assert values(function, halves(at_half), retry=0) == [2 * it for it in range(1500)]


@pytest.mark.parametrize(("version", "listen"), [("1.1", ""), ("2", "http2")])
def test_each_version_of_http_shows_the_new_token(
    tmp_path: Path, version: Any, listen: str
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    lines = """location /0 { return 200 '{"v": 7}'; }
        location / { if ($http_authorization != "Bearer new") { return 401; }
                     return 200 '{"v": 7}'; }"""

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"x": [0]})
        file.write_text("new")
        yield pa.record_batch({"x": range(1, 113)})

    with Nginx(tmp_path, lines, listen=listen) as nginx:
        client = sa.http.Client(proxy=False, version=version)
        token = sa.http.bearer(sa.secret(file=str(file)))
        url = f"{nginx.url}/{{x}}"
        function = sa.http.post(url, "v bigint", body="{x}", client=client, auth=token)
        out = sa.arrow.ordered_wait(batches(), function, retry=0, info="call")
        found = [row for batch in out for row in batch.to_pylist()]
        requests = len(nginx.requests)
    assert [row["v"] for row in found] == [7] * 113
    # A refused one is a call, too.
    assert sum(row["call"]["attempts"] for row in found) == requests > 113


def test_a_provider_is_asked_once_for_all_tasks_whose_token_was_refused() -> None:
    asked, valid = [], ["one"]

    def provide() -> str:
        asked.append(valid[0])
        return valid[0]

    def reply(request: Request, _: int) -> Answer:
        return FOUND if authorization(request) == f"Bearer {valid[0]}" else REFUSED

    def at_half() -> None:
        if both.wait(20) == 0:
            valid[0] = "two"
        both.wait(20)

    both, found = threading.Barrier(2), []
    token = sa.secret(provider=provide)
    with serve(reply) as server:
        function = get(server.url, auth=sa.http.bearer(token))
        tasks = [
            threading.Thread(target=lambda: found.append(values(function, halves(at_half))))
            for _ in range(2)
        ]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()

    assert found == [[7] * 1500] * 2
    # Each task looks it up when it starts.
    assert asked == ["one", "one", "two"]


@pytest.mark.parametrize(("changes", "attempts"), [(False, 1), (True, 3)])
def test_a_token_that_stays_refused_fails_its_row_for_good_unless_it_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, changes: bool, attempts: int
) -> None:
    (tmp_path / "token").write_text("s3cret")
    monkeypatch.setenv("TEST_TOKEN", "s3cret")
    secret = sa.secret(file=str(tmp_path / "token")) if changes else sa.secret("TEST_TOKEN")
    with serve(lambda *_: REFUSED) as server:
        function = get(server.url, auth=sa.http.bearer(secret))
        retry = sa.retry.fixed_delay(2, "1ms")
        (row,) = rows(function, [1], on_error="capture", retry=retry, timeout="20s")

    error = row["error"]
    assert (error["kind"], error["attempts"]) == ("unauthorized", attempts)
    assert "s3cret" not in json.dumps(error) + repr(function)
    assert len(server.requests) == attempts


def test_another_server_is_not_shown_who_calls_nor_is_the_first_by_way_of_it(tmp_path: Path):
    (tmp_path / "token").write_text("one")
    home: list[str] = []
    with serve(lambda *_: (302, {"Location": f"{home[0]}/back"}, b"")) as other:

        def reply(request: Request, _: int) -> Answer:
            if request.target == "/back":
                return REFUSED
            return 302, {"Location": f"{other.url}/"}, b""

        with serve(reply) as server:
            home.append(server.url)
            token = sa.secret(file=str(tmp_path / "token"))
            (row,) = rows(
                get(server.url, auth=sa.http.bearer(token)), [1], on_error="capture", retry=0
            )

    assert row["error"]["status"] == 401
    assert list(map(authorization, server.requests)) == ["Bearer one", ""]
    assert list(map(authorization, other.requests)) == [""]


class TokenServer:
    """Gives tokens, and answers those that have the newest one."""

    def __init__(
        self,
        secret: str = "s3cret",  # noqa: S107
        life: float | None = 3600,
        down_at: int = 0,
    ) -> None:
        self.secret, self.life, self.down_at = secret, life, down_at
        self.given = 0
        self.asked: list[dict[str, str]] = []

    def __call__(self, request: Request, _: int) -> Answer:
        if request.target == "/token":
            return self.give(request)
        is_known = authorization(request) == f"Bearer token-{self.given}"
        return FOUND if is_known else REFUSED

    def give(self, request: Request) -> Answer:
        form = dict(parse_qsl(request.body.decode()))
        self.asked.append(form)
        if len(self.asked) == self.down_at:
            return 503, {}, b""
        _, _, encoded = authorization(request).partition("Basic ")
        client, _, secret = base64.b64decode(encoded).decode().partition(":")
        named = (form.get("client_id", client), form.get("client_secret", secret))
        if named != ("reports", self.secret):
            return 401, {}, b'{"error": "invalid_client"}'
        self.given += 1
        answer: dict[str, Any] = {"access_token": f"token-{self.given}", "token_type": "bearer"}
        if self.life is not None:
            answer["expires_in"] = self.life
        return 200, {}, json.dumps(answer).encode()


def client_of(url: str, secret: Any = "s3cret", **options: Any) -> Any:  # noqa: S107
    return sa.http.oauth2(
        token_url=f"{url}/token", client_id="reports", client_secret=secret, **options
    )


@pytest.mark.parametrize("credentials", ["header", "form"])
def test_tasks_share_a_token_that_is_fetched_once(credentials) -> None:
    tokens, found = TokenServer(life=None), []
    with serve(tokens) as server:
        options = {"scope": "a b", "parameters": {"audience": "x&y"}, "credentials": credentials}
        function = get(server.url, auth=client_of(server.url, **options))
        call = lambda: found.append(values(function, halves(lambda: None)))  # noqa: E731
        tasks = [threading.Thread(target=call) for _ in range(2)]
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()

    assert found == [[7] * 1500] * 2
    (form,) = tokens.asked
    expected = {"grant_type": "client_credentials", "scope": "a b", "audience": "x&y"}
    if credentials == "form":
        expected |= {"client_id": "reports", "client_secret": "s3cret"}
    assert form == expected


def test_a_token_that_takes_longer_than_an_attempt_is_fetched_once_for_all() -> None:
    tokens = TokenServer(life=None)

    def slow(request: Request, before: int) -> Answer:
        if request.target == "/token":
            # Attempts that wait for it end meanwhile.
            threading.Event().wait(0.9)
        return tokens(request, before)

    with serve(slow) as server:
        function = get(server.url, auth=client_of(server.url))
        batch = pa.record_batch({"x": range(20)})
        options = {"attempt_timeout": "200ms", "retry": sa.retry.fixed_delay(12, "100ms")}
        found = values(function, iter([batch]), **options)

    assert found == [7] * 20
    assert tokens.given == 1


@pytest.mark.parametrize("grant", ["refresh_token", "urn:ietf:params:oauth:grant-type:jwt-bearer"])
def test_another_grant_takes_the_place_of_the_clients_own(grant: str) -> None:
    tokens = TokenServer(life=None)
    with serve(tokens) as server:
        parameters = {"grant_type": grant, "assertion": "x&y"}
        rows(get(server.url, auth=client_of(server.url, parameters=parameters)), [1])
        rows(get(server.url, auth=client_of(server.url)), [1])

    sent = [parse_qsl(it.body.decode()) for it in server.requests if it.target == "/token"]
    assert sent == [list(parameters.items()), [("grant_type", "client_credentials")]]


def test_a_token_that_was_taken_back_is_replaced_without_losing_a_row() -> None:
    tokens = TokenServer()
    with serve(tokens) as server:
        function = get(server.url, auth=client_of(server.url))

        def take_back() -> None:
            tokens.given += 10

        assert values(function, halves(take_back), retry=0) == [7] * 1500

    assert len(tokens.asked) == 2


def test_a_token_is_renewed_before_it_ends_and_used_until_then() -> None:
    # The server that gives tokens is down when it is asked for the third one.
    tokens = TokenServer(life=2, down_at=3)

    def rows() -> Iterator[pa.RecordBatch]:
        while tokens.given < 3:
            yield pa.record_batch({"x": [1]})

    with serve(tokens) as server:
        found = values(get(server.url, auth=client_of(server.url)), rows())

    assert set(found) == {7}
    calls = [it for it in server.requests if it.target != "/token"]
    assert {authorization(it) for it in calls} >= {f"Bearer token-{it}" for it in (1, 2, 3)}
    # A call that was on its way with the token before is made once more.
    assert len(calls) - len(found) <= 100 * tokens.given


@pytest.mark.parametrize(
    ("status", "body", "shown"),
    [
        (201, b'{"access_token": "token-0"}', ["Bearer token-0"]),
        (202, b'{"token": "s3same"}', []),
        (200, b"s3same", []),
        (204, b"", []),
    ],
)
def test_a_token_may_come_with_any_success_and_is_never_quoted(status, body, shown) -> None:
    with serve(lambda it, _: (status, {}, body) if it.target == "/token" else FOUND) as server:
        function = get(server.url, auth=client_of(server.url))
        rows = [pa.RecordBatch.from_pydict({"x": [1]})]
        out = sa.arrow.ordered_wait(rows, function, on_error="capture", retry=0)
        (row,) = [row for batch in out for row in batch.to_pylist()]
        assert [authorization(it) for it in server.requests if it.target != "/token"] == shown

    if not shown:
        message = row["error"]["message"]
        assert "is not JSON with an `access_token`" in message
        assert "s3same" not in message


def test_a_token_whose_answer_breaks_off_is_asked_for_again() -> None:
    tokens, broken = TokenServer(), []

    def reply(request: Request, before: int) -> Answer:
        answer = tokens(request, before)
        if answer is None or request.target != "/token" or len(broken) == 3:
            return answer
        status, headers, body = answer
        broken.append(body)
        # What came is a whole document.
        return status, {**headers, "Content-Length": str(len(body) + 7)}, body

    with serve(reply) as server:
        function = get(server.url, auth=client_of(server.url))
        found = values(function, halves(lambda: None), retry=sa.retry.fixed_delay(5, "7ms"))

    assert found == [7] * 1500
    shown = {authorization(it) for it in server.requests if it.target != "/token"}
    assert shown == {"Bearer token-4"}


def test_a_client_whose_secret_is_refused_says_so_and_reads_it_again(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    tokens = TokenServer("new")
    with serve(tokens) as server:
        wrong = get(server.url, auth=client_of(server.url, "wr0ng"))
        (row,) = rows(wrong, [1], on_error="capture", retry=3)
        error = row["error"]
        assert (error["kind"], error["attempts"]) == ("unauthorized", 1)
        assert error["message"].startswith("the token server `localhost` answered 401")
        assert "invalid_client" in error["message"]
        assert "wr0ng" not in json.dumps(error)

        function = get(server.url, auth=client_of(server.url, sa.secret(file=str(file))))
        retry = sa.retry.fixed_delay(20, "50ms")
        out = iter(sa.arrow.ordered_wait([pa.record_batch({"x": [1]})], function, retry=retry))
        threading.Timer(0, file.write_text, ["new"]).start()
        assert [row["v"] for batch in out for row in batch.to_pylist()] == [7]


def test_requests_are_signed_with_keys_that_are_read_again_when_they_have_ended() -> None:
    keys = [{"AccessKeyId": "AKONE", "SecretAccessKey": "s3cret", "SessionToken": "t1"}]

    def reply(request: Request, _: int) -> Answer:
        is_known = request.headers["x-amz-security-token"] == keys[0]["SessionToken"]
        return FOUND if is_known else (403, {}, b"ExpiredToken")

    def at_half() -> None:
        keys[0] = {"AccessKeyId": "AKTWO", "SecretAccessKey": "other", "SessionToken": "t2"}

    secret = sa.secret(provider=lambda: json.dumps(keys[0]))
    auth = sa.http.aws_sigv4(service="execute-api", region="eu-central-1", credentials=secret)
    with serve(reply) as server:
        assert values(get(server.url, auth=auth), halves(at_half), retry=0) == [7] * 1500

    first, last = server.requests[0], server.requests[-1]
    start = "AWS4-HMAC-SHA256 Credential={}/{}/eu-central-1/execute-api/aws4_request, "
    signed = "SignedHeaders=host;x-amz-date;x-amz-security-token, Signature="
    for request, key in ((first, "AKONE"), (last, "AKTWO")):
        expected = start.format(key, request.headers["x-amz-date"][:8]) + signed
        assert authorization(request).startswith(expected)


EXPIRED = {
    "a status": (403, {}, b"no"),
    "s3": (
        400,
        {},
        b"<Error><Code>ExpiredToken</Code><Message>The token has ended</Message></Error>",
    ),
    "dynamodb": (400, {}, b'{"__type": "com.amazon.coral.service#ExpiredTokenException"}'),
    "lambda": (400, {"x-amzn-errortype": "ExpiredTokenException:http://h/"}, b"{}"),
}


@pytest.mark.parametrize("answer", EXPIRED.values(), ids=EXPIRED)
def test_keys_that_have_ended_are_read_again_however_the_service_says_so(answer: Answer) -> None:
    keys = [{"AccessKeyId": "AKONE", "SecretAccessKey": "s3cret", "SessionToken": "t1"}]

    def reply(request: Request, _: int) -> Answer:
        if request.headers["x-amz-security-token"] == "t2":
            return FOUND
        keys[0]["SessionToken"] = "t2"
        return answer

    secret = sa.secret(provider=lambda: json.dumps(keys[0]))
    auth = sa.http.aws_sigv4(service="dynamodb", region="eu-central-1", credentials=secret)
    with serve(reply) as server:
        call = get(server.url, auth=auth)
        assert values(call, iter([pa.record_batch({"x": range(13)})]), retry=0) == [7] * 13


def test_calls_that_aws_throttles_by_a_400_are_made_again() -> None:
    throttled = b'{"__type": "com.amazonaws.dynamodb#ProvisionedThroughputExceededException"}'

    def reply(_: Request, number: int) -> Answer:
        return (400, {}, throttled) if number < 5 else FOUND

    keys = json.dumps({"AccessKeyId": "AK", "SecretAccessKey": "s3cret"})
    secret = sa.secret(provider=lambda: keys)
    auth = sa.http.aws_sigv4(service="dynamodb", region="eu-central-1", credentials=secret)
    retry = sa.retry.fixed_delay(7, "1ms")
    with serve(reply) as server:
        call = get(server.url, auth=auth)
        batches = iter([pa.record_batch({"x": range(13)})])
        assert values(call, batches, retry=retry) == [7] * 13
    assert len(server.requests) == 13 + 5


def test_keys_of_the_environment_sign_what_s3_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    auth = sa.http.aws_sigv4(service="s3", region="us-east-1")
    with serve(lambda *_: FOUND) as server:
        options = {
            "body": "{x}",
            "auth": auth,
            "client": CLIENT,
            "headers": {"X-Amz-Acl": "private"},
        }
        rows(sa.http.request("PUT", f"{server.url}/a b/{{x}}", "v bigint", **options), [1])

    (request,) = server.requests
    assert "SignedHeaders=host;x-amz-acl;x-amz-content-sha256;x-amz-date," in authorization(request)
    content = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    assert request.headers["x-amz-content-sha256"] == content
    assert "x-amz-security-token" not in request.headers


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: get("http://host", auth="token"), "`auth` must be sa.http.basic"),
        (lambda: sa.http.basic("a:b", "c"), "`user` must have no colon"),
        (lambda: sa.http.bearer(""), "`token` must be"),
        (lambda: client_of("ftp://host"), "`token_url` must start with https://"),
        (lambda: client_of("http://h", credentials="body"), "`credentials` must be one of"),
        (
            lambda: sa.http.aws_sigv4(service="s3", region="x", access_key="AK"),
            "`access_key` and `secret_key` belong together",
        ),
        (
            lambda: get("http://h", auth=sa.http.bearer("a"), headers={"authorization": "b"}),
            "`auth` and the header `Authorization` exclude each other",
        ),
        (
            lambda: sa.http.get("https://{h}/", "v bigint", auth=sa.http.bearer("a")),
            "header `Authorization` would be sent to whichever host",
        ),
    ],
)
def test_what_shows_nobody_is_refused_at_once(make, words) -> None:
    with pytest.raises(sa.ConfigurationError) as info:
        make()
    assert words in str(info.value)
