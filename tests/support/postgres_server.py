# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server for tests, on a free port and with a data directory of its own."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.servers import LOOPBACK, START_SECONDS, Server, find_program, free_port

__all__ = ["PASSWORD", "PostgresServer", "server_account"]

PASSWORD = "open-sesame"  # noqa: S105 - of a server that lives as long as a test
"""What the user ``tester`` logs in with; it appears in no message."""

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "64MB",
    "max_connections": "20",
    "superuser_reserved_connections": "3",
    "restart_after_crash": "on",
}


class PostgresServer(Server):
    """PostgreSQL with the database ``postgres`` and the user ``tester``.

    Args:
        certificate: Files of the server's certificate and key, to offer encryption.
        clients_ca: File of the authority of the certificates that clients need to get in.
        primary: A running server that this one follows, as its standby.
        settings: Further settings of the server.
    """

    def __init__(
        self,
        certificate: tuple[Path, Path] | None = None,
        clients_ca: Path | None = None,
        primary: PostgresServer | None = None,
        **settings: str,
    ) -> None:
        port = free_port()
        # Not below pytest's directory, which the account of the server may not enter.
        directory = Path(tempfile.mkdtemp(prefix="sparkawait-postgres-"))
        self.data = directory / "data"
        account = server_account()
        if "user" in account:
            shutil.chown(directory, account["user"], account["group"])
        if primary is None:
            command = ["cp", "--archive", _initialised(), self.data]
            subprocess.run(command, check=True, capture_output=True, cwd=directory, **account)
        else:
            self._copy_of(primary, directory, account)
        given = SETTINGS | settings
        if certificate is not None:
            files = [_copy(it, self.data, account) for it in certificate]
            given |= {"ssl": "on", "ssl_cert_file": files[0], "ssl_key_file": files[1]}
        if clients_ca is not None:
            given |= {"ssl_ca_file": _copy(clients_ca, self.data, account)}
            rules = "local all all trust\nhostssl all all 127.0.0.1/32 cert\n"
            (self.data / "pg_hba.conf").write_text(rules)
        options = [f"--{name}={value}" for name, value in given.items()]
        places = ["-h", LOOPBACK, "-k", str(directory), "-p", str(port)]
        command = [find_program("postgres"), "-D", str(self.data), *places, *options]
        super().__init__(command, port, directory, **account)

    def __exit__(self, *details: object) -> None:
        """Stops the server and removes its data."""
        super().__exit__(*details)
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Starts the server and returns when it takes queries, which is after it listens."""
        super().start()
        command = [find_program("pg_isready"), "-h", str(self.directory), "-p", str(self.port)]
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(command, capture_output=True, check=False).returncode:
            if time.monotonic() > deadline:
                msg = f"PostgreSQL takes no queries:\n{self.log}"
                raise RuntimeError(msg)
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends the server without waiting for its clients."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
        super().stop()

    def pause(self) -> None:
        """Stops the server's work; connections stay open and stall."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused server go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        # Its children are in process groups of their own.
        if self.process is not None:
            main = self.process.pid
            children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
            for process in (main, *map(int, children)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)

    def promote(self) -> None:
        """Makes a primary of a standby; returns when it takes writes."""
        assert self.run("select pg_promote()") == "t"

    def _copy_of(self, primary: PostgresServer, directory: Path, account: dict[str, Any]) -> None:
        place = ["-h", str(primary.directory), "-p", str(primary.port), "-U", "tester"]
        options = ["-D", str(self.data), "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        command = [find_program("pg_basebackup"), *place, *options]
        subprocess.run(command, check=True, capture_output=True, cwd=directory, **account)

    @property
    def dsn(self) -> str:
        """The address, with the password."""
        return self.dsn_with(PASSWORD)

    def dsn_with(self, password: str, **parameters: str) -> str:
        """Returns the address with another password, and parameters of the URL."""
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        place = f"{LOOPBACK}:{self.port}/postgres"
        return f"postgresql://tester:{password}@{place}" + (f"?{query}" if query else "")

    def run(self, sql: str) -> str:
        """Runs statements over the server's socket and returns what they print."""
        psql = [find_program("psql"), "-h", str(self.directory), "-p", str(self.port)]
        arguments = [*psql, "-U", "tester", "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-qAt"]
        done = subprocess.run(arguments, input=sql, text=True, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()


def server_account() -> dict[str, Any]:
    """Returns arguments of `subprocess.Popen` for servers that refuse to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    msg = "the server does not run as root, and there is no account `postgres` or `nobody`"
    raise RuntimeError(msg)


@functools.cache
def _initialised() -> Path:
    """Makes the data that each server begins with: to copy it takes a fraction of the time."""
    account = server_account()
    directory = Path(tempfile.mkdtemp(prefix="sparkawait-postgres-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    if "user" in account:
        shutil.chown(directory, account["user"], account["group"])
    password, data = directory / "password", directory / "data"
    password.write_text(PASSWORD)
    password.chmod(0o644)
    command = [find_program("initdb"), "-D", str(data), "-U", "tester", "--no-sync"]
    options = ["--auth-local=trust", "--auth-host=scram-sha-256", "-E", "UTF8"]
    arguments = [*command, *options, "--locale=C", f"--pwfile={password}"]
    subprocess.run(arguments, check=True, capture_output=True, cwd=directory, **account)
    return data


def _copy(file: Path, directory: Path, account: dict[str, Any]) -> str:
    copied = directory / file.name
    shutil.copy(file, copied)
    copied.chmod(0o600)
    if "user" in account:
        shutil.chown(copied, account["user"], account["group"])
    return str(copied)
