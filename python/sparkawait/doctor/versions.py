# SPDX-License-Identifier: Apache-2.0
"""The versions that a bug report needs, without starting Spark."""

from __future__ import annotations

import platform

__all__ = ["show_versions"]


def show_versions() -> None:
    """Prints the versions that a bug report needs: sparkawait, Python, packages, Java, platform.

    It starts no Spark session. ``sparkawait doctor`` looks further: at the executors, and at calls
    that it makes there.

    Examples:
        >>> import sparkawait as sa
        >>> sa.show_versions()  # doctest: +SKIP
    """
    # A program that only makes calls does not pay for these imports.
    from sparkawait._core import VERSION
    from sparkawait.doctor import probe
    from sparkawait.doctor.java import look_for_java
    from sparkawait.doctor.report import Report

    packages = {name: probe.version(name) for name in probe.PACKAGES}
    report, spark = Report(VERSION), packages["pyspark"] or packages["pyspark-client"]
    if spark is not None:
        look_for_java(report, spark)
    found = {
        "sparkawait": VERSION,
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": probe.system(),
        **{name: version or "not installed" for name, version in packages.items()},
        **{finding.subject: finding.text for finding in report.findings},
    }
    width = max(map(len, found))
    print("\n".join(f"{name:<{width}}  {version}" for name, version in found.items()))
