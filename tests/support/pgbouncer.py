# SPDX-License-Identifier: Apache-2.0
"""PgBouncer for tests: a pooler in transaction mode before a PostgreSQL server."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.postgres_server import PASSWORD, PostgresServer, server_account
from tests.support.servers import LOOPBACK, Server, find_program, free_port

__all__ = ["PgBouncer"]


class PgBouncer(Server):
    """A pooler with few connections of its own, which each transaction gets another of.

    As poolers do by themselves, it removes nothing that a transaction has prepared or set there.

    Args:
        server: The server that the connections are to.
        pool_size: How many there are.
        settings: Further settings of the pooler.
    """

    def __init__(self, server: PostgresServer, pool_size: int = 2, **settings: str) -> None:
        directory = Path(tempfile.mkdtemp(prefix="sparkawait-pgbouncer-"))
        account = server_account()
        if "user" in account:
            shutil.chown(directory, account["user"], account["group"])
        port = free_port()
        users = directory / "users.txt"
        users.write_text(f'"tester" "{PASSWORD}"\n')
        more = "\n".join(f"{name} = {value}" for name, value in settings.items())
        file = directory / "pgbouncer.ini"
        file.write_text(
            f"""
[databases]
postgres = host={LOOPBACK} port={server.port} dbname=postgres
[pgbouncer]
listen_addr = {LOOPBACK}
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
admin_users = tester
pool_mode = transaction
default_pool_size = {pool_size}
server_round_robin = 1
{more}
"""
        )
        command = [find_program("pgbouncer"), str(file)]
        super().__init__(command, port, directory, **account)

    def __exit__(self, *details: object) -> None:
        """Stops the pooler and removes its directory."""
        super().__exit__(*details)
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def dsn(self) -> str:
        """The address, with the password."""
        return self._dsn_of("postgres")

    def tell(self, command: str) -> str:
        """Runs a command of the pooler's console and returns what it prints."""
        return self._psql(self._dsn_of("pgbouncer"), command)

    def run(self, sql: str) -> str:
        """Runs statements as another program behind the pooler does, and returns what it prints."""
        return self._psql(self.dsn, sql)

    def _psql(self, dsn: str, command: str) -> str:
        psql = [find_program("psql"), dsn, "-v", "ON_ERROR_STOP=1", "-qAt"]
        done = subprocess.run([*psql, "-c", command], text=True, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def _dsn_of(self, database: str) -> str:
        return f"postgresql://tester:{PASSWORD}@{LOOPBACK}:{self.port}/{database}"
