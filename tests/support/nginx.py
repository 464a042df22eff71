# SPDX-License-Identifier: Apache-2.0
"""A real nginx."""

from __future__ import annotations

import http.client
import signal
from pathlib import Path

from tests.support.certificates import Certificates
from tests.support.servers import LOOPBACK, Server, find_program, free_port

__all__ = ["Nginx"]

CONFIGURATION = """
daemon off; {master} pid {directory}/nginx.pid; error_log stderr warn;
events {{ worker_connections 2048; }}
http {{
    log_format line '{log}';
    access_log {directory}/access.log line;
    client_body_temp_path {directory}; proxy_temp_path {directory};
    fastcgi_temp_path {directory}; uwsgi_temp_path {directory}; scgi_temp_path {directory};
    default_type application/json;
    keepalive_requests 1000000;
    server {{
        listen 127.0.0.1:{port}{listen};
        server_name localhost;
        root {directory}/files;
        {tls}
        {server}
    }}
    server {{
        listen 127.0.0.1:{control};
        access_log off;
        return 204;
    }}
}}
"""


class Nginx(Server):
    """nginx over a directory of files.

    Args:
        directory: An empty directory of its own.
        server: Further lines of its ``server`` block.
        certificates: Makes it speak TLS.
        listen: Further words of ``listen``, such as ``"http2"``.
        log: What the access log says of a request, with nginx's variables.
        can_reload: Has a master process, which `reload` needs.
    """

    def __init__(
        self,
        directory: Path,
        server: str = "",
        *,
        certificates: Certificates | None = None,
        listen: str = "",
        log: str = "$request",
        can_reload: bool = False,
    ) -> None:
        port = free_port()
        self.control = free_port()
        self.files = directory / "files"
        self.files.mkdir(parents=True, exist_ok=True)
        tls = ""
        if certificates is not None:
            listen = f"ssl {listen}"
            pem = certificates.server_path
            tls = f"ssl_certificate {pem}; ssl_certificate_key {pem};"
        configuration = directory / "nginx.conf"
        configuration.write_text(
            CONFIGURATION.format(
                directory=directory,
                port=port,
                control=self.control,
                listen=f" {listen}",
                tls=tls,
                server=server,
                log=log,
                master="worker_processes 1;" if can_reload else "master_process off;",
            )
        )
        command = [find_program("nginx"), "-p", str(directory), "-c", str(configuration)]
        super().__init__(command, port, directory)
        scheme = "http" if certificates is None else "https"
        self.url = f"{scheme}://localhost:{port}"

    def reload(self) -> None:
        """Has new workers take the connections; the old ones end as soon as they are idle."""
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    @property
    def requests(self) -> list[str]:
        """The lines of the access log, one for each request that was answered.

        nginx writes a line after the answer has left. It does one thing at a time, so what was
        answered before it answers here is in the log.
        """
        asked = http.client.HTTPConnection(LOOPBACK, self.control)
        asked.request("GET", "/")
        asked.getresponse().read()
        asked.close()
        return self.logged

    @property
    def logged(self) -> list[str]:
        """The lines of the access log by now, for one who waits for them."""
        return (self.directory / "access.log").read_text().splitlines()
