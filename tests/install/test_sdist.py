# SPDX-License-Identifier: Apache-2.0
"""The source archive builds in a clean folder; wheels have the licences of all that is linked."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.meta.repository import ROOT, tracked_files
from tools import project_urls, third_party_licences

pytestmark = [pytest.mark.install, pytest.mark.timeout(900)]


def run(*command, **settings):
    ran = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.fixture
def archive(tmp_path):
    run(sys.executable, "-m", "maturin", "sdist", "--out", str(tmp_path), cwd=ROOT)
    [archive] = tmp_path.glob("*.tar.gz")
    return archive


def test_the_source_archive_has_what_it_is_built_from(archive):
    with tarfile.open(archive) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    assert {"LICENSE", "NOTICE", "README.md", "Cargo.lock", "python/sparkawait/py.typed"} <= names
    # The simulation is not linked.
    sources = tracked_files(
        "rust/*/src/*.rs", "rust/*/src/*.lua", "python/sparkawait/*.py", ":!rust/simulation"
    )
    assert {path.relative_to(ROOT).as_posix() for path in sources} - names == set()


@pytest.mark.nightly
def test_the_source_archive_builds_in_a_clean_folder(archive, tmp_path):
    # With the tools of this environment; only crates may be fetched.
    run(
        *[sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"],
        *["--no-build-isolation", "--wheel-dir", str(tmp_path / "wheels"), str(archive)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            # As `make dev` has built it, whose crates are there.
            "MATURIN_PEP517_ARGS": "--profile dev",
            "CARGO_TARGET_DIR": str(ROOT / "target"),
        },
    )
    [wheel] = (tmp_path / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        assert {"sparkawait/_core.abi3.so", "sparkawait/_flights/job.py"} <= {*content.namelist()}


@pytest.mark.parametrize("target", ["x86_64-unknown-linux-gnu", "aarch64-apple-darwin"])
def test_every_crate_that_is_linked_has_a_licence_text(tmp_path, target):
    third_party_licences.main(tmp_path / "licences.txt", target)

    text = (tmp_path / "licences.txt").read_text()
    for crate in ("tokio", "arrow-array", "rustls", "ring"):
        assert f"\n  {crate} " in text
    assert "\n  sparkawait" not in text
    # Used when it is built and tested, and not linked.
    assert "\n  criterion " not in text


def test_addresses_are_written_where_pypi_reads_them():
    text = project_urls.PYPROJECT.read_text()
    changed = project_urls.with_urls(text, "https://forge.test/me/sparkawait", "v0.1.0")

    assert 'Errors = "https://forge.test/me/sparkawait/blob/v0.1.0/docs/errors.md"\n' in changed
    assert project_urls.with_urls(changed, "https://forge.test/me/sparkawait", "v0.1.0") == changed
    there = "https://docs.test/sparkawait/0.1.0"
    changed = project_urls.with_urls(text, "https://forge.test/me/sparkawait", "v0.1.0", there)
    assert f'Errors = "{there}/errors.html"\n' in changed
    with pytest.raises(SystemExit):
        project_urls.with_urls(text, "forge.test", "v0.1.0")
