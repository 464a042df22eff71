# SPDX-License-Identifier: Apache-2.0
"""Who calls an HTTP service: ``auth=``, made by `basic`, `bearer`, `oauth2` and `aws_sigv4`.

What is made here names secrets. They are looked up in the executors, and again when a server
refuses a call with 401.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sparkawait._checks import choice, mapping, refuse, text
from sparkawait.secrets import LookUp, Secret, Sources, a_password, looked_up, reveal, secret

_KEYS = ("AccessKeyId", "SecretAccessKey", "SessionToken")
"""What programs for ``credential_process`` call the keys of AWS."""

_SESSION = secret("AWS_SESSION_TOKEN")
"""Belongs to keys that last for a while, and is not there for others."""


@dataclass(frozen=True)
class Auth:
    """Who calls. Made by `basic`, `bearer`, `oauth2` and `aws_sigv4`."""

    kind: Literal["basic", "bearer", "oauth2", "aws_sigv4"]
    # May have passwords in them.
    secrets: tuple[str | Secret | None, ...] = field(repr=False)
    settings: tuple[tuple[str, Any], ...] = ()

    def description(self, look_up: LookUp) -> dict[str, Any]:
        """Returns what the extension module is told, with the secrets looked up."""
        text = self._text(look_up)
        if self.kind in ("basic", "bearer"):
            return {"header": text}
        return {self.kind: {"secret": text, **dict(self.settings)}}

    def sources(self) -> tuple[Sources, dict[str, str]]:
        """Returns what reads secrets again that may change, and what tells them from others."""
        changing = [it for it in self.secrets if isinstance(it, Secret) and it.may_change]
        if not changing:
            return {}, {}

        def read() -> str:
            return self._text(looked_up)

        is_cheap = all(it.is_cheap for it in changing)
        told = [it.source if isinstance(it, Secret) else None for it in self.secrets]
        return {"auth": (read, is_cheap)}, {"auth": json.dumps([self.kind, told])}

    def _text(self, look_up: LookUp) -> str:
        """Returns what is kept secret, as one text."""
        is_absent = look_up is looked_up and "AWS_SESSION_TOKEN" not in os.environ
        given = [None if is_absent and it == _SESSION else it for it in self.secrets]
        texts = [None if it is None else reveal(it, look_up) for it in given]
        if self.kind == "basic":
            user, password = texts
            return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        if self.kind == "bearer":
            return f"Bearer {texts[0]}"
        if self.kind == "aws_sigv4" and len(texts) > 1:
            return json.dumps({key: it for key, it in zip(_KEYS, texts, strict=True) if it})
        if self.kind == "aws_sigv4" and look_up is not looked_up:
            return json.dumps(dict.fromkeys(_KEYS, "secret"))
        return texts[0] or ""


def basic(user: str, password: str | Secret) -> Auth:
    """Returns a user and a password for ``auth=`` (RFC 7617).

    Args:
        user: The name of the user, without a colon.
        password: The password; mostly a secret.

    Raises:
        ConfigurationError: If they are not texts, or there is a colon in `user`.

    Examples:
        >>> import sparkawait as sa
        >>> sa.http.get(
        ...     "https://api.example.com/{id}",
        ...     "name string",
        ...     auth=sa.http.basic("reports", sa.secret("API_PASSWORD")),
        ... )
        HttpFunction(method='GET', input_columns=('id',))
    """
    if ":" in text(user, "user"):
        refuse("`user` must have no colon: a server takes what follows it for the password")
    return Auth("basic", (user, a_password(password, "password")))


def bearer(token: str | Secret) -> Auth:
    """Returns a token for ``auth=`` that is sent as ``Authorization: Bearer`` (RFC 6750).

    Args:
        token: The token without the word ``Bearer``; mostly a secret. One of a file or a provider
            is read again when the server refuses it.

    Raises:
        ConfigurationError: If it is not a text.

    Examples:
        >>> import sparkawait as sa
        >>> sa.http.get(
        ...     "https://api.example.com/{id}",
        ...     "name string",
        ...     auth=sa.http.bearer(sa.secret(file="/run/secrets/token")),
        ... )
        HttpFunction(method='GET', input_columns=('id',))
    """
    return Auth("bearer", (a_password(token, "token"),))


def oauth2(
    *,
    token_url: str,
    client_id: str,
    client_secret: str | Secret,
    scope: str | None = None,
    parameters: Mapping[str, str] | None = None,
    credentials: Literal["header", "form"] = "header",
) -> Auth:
    """Returns the credentials of a client for ``auth=`` that gets access tokens (RFC 6749, 4.4).

    All tasks of a process share a token. It is fetched before the first call, and again, by one
    request, in the last fifth of its life, or when a server refuses it. While that fails the old
    token is used until it ends.

    Args:
        token_url: Where tokens are fetched, with the connections of ``client=``.
        client_id: The name of the client.
        client_secret: Its secret.
        scope: What the token is for, as the server names it.
        parameters: What else the request for a token says, such as ``{"audience": ".."}``.
        credentials: Where name and secret of the client stand in that request: ``"header"`` (as
            in `basic`), or ``"form"``, for servers that know no other place.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> import sparkawait as sa
        >>> sa.http.get(
        ...     "https://api.example.com/{id}",
        ...     "name string",
        ...     auth=sa.http.oauth2(
        ...         token_url="https://login.example.com/token",
        ...         client_id="reports",
        ...         client_secret=sa.secret("CLIENT_SECRET"),
        ...         scope="customers.read",
        ...     ),
        ... )
        HttpFunction(method='GET', input_columns=('id',))
    """
    if not text(token_url, "token_url", quoted=False).startswith(("http://", "https://")):
        # Not quoted: there may be a password in it.
        refuse("`token_url` must start with https:// or http://, got a text with another beginning")
    form = mapping(parameters, "parameters")
    # Not quoted: a refresh token or an assertion may be among them.
    rule = "a mapping to texts"
    form = {key: text(it, "parameters", rule, quoted=False) for key, it in form.items()}
    if scope is not None:
        form["scope"] = text(scope, "scope")
    settings = {
        "token_url": token_url,
        "client_id": text(client_id, "client_id"),
        "parameters": tuple(form.items()),
        "in_header": choice(credentials, "credentials", "header", "form") == "header",
    }
    return Auth("oauth2", (a_password(client_secret, "client_secret"),), tuple(settings.items()))


def aws_sigv4(
    *,
    service: str,
    region: str,
    access_key: str | Secret | None = None,
    secret_key: Secret | None = None,
    session_token: str | Secret | None = None,
    credentials: Secret | None = None,
) -> Auth:
    """Returns keys of AWS for ``auth=`` that sign each request (Signature Version 4).

    Without keys these are the environment variables ``AWS_ACCESS_KEY_ID``,
    ``AWS_SECRET_ACCESS_KEY`` and, if it is set in the executors, ``AWS_SESSION_TOKEN``.

    Args:
        service: The name of the service in signatures, such as ``"execute-api"`` or ``"s3"``.
        region: The region, such as ``"eu-central-1"``.
        access_key: The identifier of a key.
        secret_key: The key, a secret.
        session_token: The token of keys that last for a while.
        credentials: Instead of the three, a secret whose text has all of them, as programs for
            ``credential_process`` print it: JSON with ``AccessKeyId``, ``SecretAccessKey`` and
            ``SessionToken``. Keys that end come from ``sa.secret(provider=..)``, which is asked
            again five minutes before their ``Expiration``, if they say one, and when the service
            refuses them: with 401, 403, or a 400 whose code says that they have ended.

    Raises:
        ConfigurationError: If an argument is wrong, or only some of them are given.

    Examples:
        >>> import sparkawait as sa
        >>> sa.http.post(
        ...     "https://abc123.execute-api.eu-central-1.amazonaws.com/prod/score",
        ...     "score double",
        ...     json={"age": "{age}"},
        ...     auth=sa.http.aws_sigv4(service="execute-api", region="eu-central-1"),
        ... )
        HttpFunction(method='POST', input_columns=('age',))
    """
    settings = (("service", text(service, "service")), ("region", text(region, "region")))
    keys = (access_key, secret_key, session_token)
    if credentials is not None:
        if any(it is not None for it in keys):
            refuse("`credentials` has all keys: leave out `access_key` and the others")
        return Auth("aws_sigv4", (a_password(credentials, "credentials"),), settings)
    if (access_key is None) != (secret_key is None) or (session_token and access_key is None):
        refuse("`access_key` and `secret_key` belong together, and `session_token` to them")
    if access_key is None or secret_key is None:
        of_environment = secret("AWS_ACCESS_KEY_ID"), secret("AWS_SECRET_ACCESS_KEY"), _SESSION
        return Auth("aws_sigv4", of_environment, settings)
    given = (a_password(access_key, "access_key"), a_password(secret_key, "secret_key"))
    token = None if session_token is None else a_password(session_token, "session_token")
    return Auth("aws_sigv4", (*given, token), settings)


def the_auth(value: object, name: str) -> Auth | None:
    """Returns who calls, or refuses other values."""
    if value is not None and not isinstance(value, Auth):
        rule = "sa.http.basic(..), bearer(..), oauth2(..) or aws_sigv4(..)"
        # Not quoted: somebody may have given the token itself.
        refuse(f"`{name}` must be {rule}, got a `{type(value).__name__}`")
    return value
