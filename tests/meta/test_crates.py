# SPDX-License-Identifier: Apache-2.0
"""Which crate may depend on which."""

import pytest

from tests.meta.repository import cargo_metadata, run

# What functions stand on.
BELOW_FUNCTIONS = {"sparkawait-core", "sparkawait-arrow", "sparkawait-runtime", "sparkawait-task"}

# crate: crates of this workspace that it may depend on, and what must not be anywhere below it.
LAYERS = {
    "sparkawait-core": (set(), {"tokio", "arrow", "pyo3"}),
    "sparkawait-arrow": ({"sparkawait-core"}, {"tokio", "pyo3"}),
    "sparkawait-runtime": ({"sparkawait-core"}, {"arrow", "pyo3"}),
    "sparkawait-task": (
        {"sparkawait-core", "sparkawait-arrow", "sparkawait-runtime"},
        {"pyo3", "hyper", "redis", "rustls", "serde"},
    ),
    "sparkawait-holder": (
        {*BELOW_FUNCTIONS, "sparkawait-wire"},
        {"pyo3", "hyper", "redis", "rustls", "serde"},
    ),
    "sparkawait-connect": ({*BELOW_FUNCTIONS, "sparkawait-lease"}, {"pyo3"}),
    "sparkawait-wire": ({"sparkawait-core"}, {"tokio", "arrow", "pyo3"}),
    "sparkawait-lease": (set(), {"tokio", "arrow", "pyo3", "redis"}),
    "sparkawait-testing": (BELOW_FUNCTIONS, {"pyo3", "redis", "rustls"}),
    "sparkawait-simulation": (BELOW_FUNCTIONS, {"pyo3", "hyper", "redis", "rustls"}),
    "sparkawait-macros": (set(), {"tokio", "arrow", "pyo3"}),
    "sparkawait-python": (
        {
            *BELOW_FUNCTIONS,
            "sparkawait-holder",
            "sparkawait-wire",
            "sparkawait-connect",
            "sparkawait-lease",
            "sparkawait-testing",
            "sparkawait-macros",
        },
        set(),
    ),
    "sparkawait-benches": ({"sparkawait-core", "sparkawait-arrow"}, set()),
}


def packages_below(crate: str, *arguments: str) -> list[str]:
    tree = run(
        "cargo", "tree", "--locked", "-p", crate, "-e", "normal", "--prefix", "none", *arguments
    )
    return [line.split()[0] for line in tree.splitlines()][1:]


def test_every_crate_has_a_place_in_the_table():
    assert {package["name"] for package in cargo_metadata("--no-deps")["packages"]} == set(LAYERS)


def test_the_core_depends_on_nothing_but_std():
    assert packages_below("sparkawait-core", "--depth", "1") == []


@pytest.mark.parametrize("crate", LAYERS)
def test_dependencies_follow_the_table(crate: str):
    allowed, forbidden = LAYERS[crate]
    below = set(packages_below(crate))
    ours = {name for name in below if name.startswith("sparkawait-")}
    # pyo3-ffi and arrow-array count as pyo3 and arrow.
    families = {name.split("-")[0] for name in below} - {"sparkawait"}
    assert ours <= allowed
    assert families & forbidden == set()


OTHER_CLIENTS = {"attohttpc", "awc", "curl", "isahc", "minreq", "reqwest", "surf", "ureq"}
OTHER_TLS = {
    "aws-lc-rs",
    "boring",
    "mbedtls",
    "native-tls",
    "openssl",
    "s2n-tls",
    "schannel",
    "wolfssl",
}


def test_the_extension_has_one_http_client_and_one_tls():
    below = packages_below("sparkawait-python")
    assert {it.removesuffix("-sys") for it in below} & (OTHER_CLIENTS | OTHER_TLS) == set()
    tree = run(
        "cargo", "tree", "--locked", "-p", "sparkawait-python", "-e", "normal", "--prefix", "none"
    )
    versions = {tuple(line.split()[:2]) for line in tree.splitlines()}
    for name in ("h2", "hyper", "ring", "rustls", "tokio-rustls"):
        assert len([it for it in versions if it[0] == name]) == 1, name
