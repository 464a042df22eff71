# SPDX-License-Identifier: Apache-2.0
"""The command line, also as ``python -m sparkawait``: ``demo`` and ``doctor``.

Each program adds its own options. PySpark and what else they need is imported when one runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from sparkawait._doctor import program as doctor

# The folder examples/flights, which is linked into the package and so comes with the wheel.
from sparkawait._flights import models
from sparkawait._flights import settings as demo

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit status.

    Args:
        arguments: What follows the name of the program; by default those of this process.
    """
    settings = parse(sys.argv[1:] if arguments is None else arguments)
    is_doctor = isinstance(settings, doctor.DoctorSettings)
    try:
        if isinstance(settings, models.ModelSettings):
            is_well = models.run(settings)
        else:
            is_well = doctor.run(settings) if is_doctor else demo.run(settings)
    except demo.DemoError as error:
        print(f"sparkawait demo: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"sparkawait {'doctor' if is_doctor else 'demo'}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return 0 if is_well else 1


def parse(
    arguments: Sequence[str],
) -> demo.Settings | doctor.DoctorSettings | models.ModelSettings:
    """Reads the arguments of the program; says what is wrong with them and exits, if anything."""
    parser = argparse.ArgumentParser(prog="sparkawait", description="Async I/O for Spark.")
    parser.add_argument("--version", action="version", version=f"sparkawait {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    flights = commands.add_parser("demo", **demo.ABOUT)
    demo.add_options(flights)
    flights.add_argument(
        "--llm", action="store_true", help="ask a model about jokes instead, and kill the job once"
    )
    doctor.add_options(commands.add_parser("doctor", **doctor.ABOUT))
    given = vars(parser.parse_args(arguments))
    if given.pop("command") == "doctor":
        return doctor.DoctorSettings(**given)
    if given.pop("llm"):
        return models.ModelSettings(given["rows"] or models.ModelSettings.rows)
    return demo.settings_of(given, parser)


def _version() -> str:
    try:
        return version("sparkawait")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
