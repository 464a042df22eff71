# SPDX-License-Identifier: Apache-2.0
"""Certificates for servers and clients of tests."""

from __future__ import annotations

from pathlib import Path

import trustme

from tests.support.servers import LOOPBACK

__all__ = ["EXPIRED", "Certificates"]

EXPIRED = """-----BEGIN CERTIFICATE-----
MIIBWzCCAQKgAwIBAgIBBzAKBggqhkjOPQQDAjAtMRAwDgYDVQQKDAdFeGFtcGxl
MRkwFwYDVQQDDBBFeGFtcGxlIFJvb3Qgw4QxMB4XDTEzMDEzMTAwMDAwMFoXDTIz
MDMwNzExMTMxN1owLTEQMA4GA1UECgwHRXhhbXBsZTEZMBcGA1UEAwwQRXhhbXBs
ZSBSb290IMOEMTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJsmYGqZ/dKNiEpb
/MugqbPA3hBI/pyG4MiNBI2b7ZCff/FVWuHeOyyBy7kcHrG11IGEbe1pbvbxCUmB
iGHedvSjEzARMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgccqk
5A2Euv1uutCiyRdm8MHeWtyfsLW/nBp9DD9M7vYCIAmDKZbKaJCW+AnnCpVcAvXS
ew1jmTKnSa+7xbewFspg
-----END CERTIFICATE-----
"""
"""That of the authority `Example Root Ä1`, until 2023-03-07."""


class Certificates:
    """A certificate authority with certificates of a server and a client, as PEM texts and files.

    Each file has the key and the certificate.
    """

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        server = authority.issue_cert("localhost", LOOPBACK)
        client = authority.issue_cert("client@example.com")
        self.ca = authority.cert_pem.bytes().decode()
        self.client = client.private_key_and_cert_chain_pem.bytes().decode()
        self.ca_path = directory / "ca.pem"
        self.server_path = directory / "server.pem"
        self.client_path = directory / "client.pem"
        authority.cert_pem.write_to_path(self.ca_path)
        server.private_key_and_cert_chain_pem.write_to_path(self.server_path)
        client.private_key_and_cert_chain_pem.write_to_path(self.client_path)
