# SPDX-License-Identifier: Apache-2.0
"""What the doctor is told to look at: the options of ``sparkawait doctor``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from sparkawait.durations import positive_duration
from sparkawait.exceptions import ConfigurationError

__all__ = ["ABOUT", "DoctorSettings", "add_options", "run"]

ABOUT = {
    "help": "look for what is in the way of a job, and print a report to paste",
    "description": "Looks at this Python, at Java, at the executors of a Spark and at what they"
    " have installed, makes a call through each path that a row can take, and prints what it"
    " found, without values of environment variables or other secrets. The exit status is 0"
    " if there is no problem, else 1.",
}


@dataclass(frozen=True)
class DoctorSettings:
    """The options of the program.

    Attributes:
        master: The Spark master of a classic session.
        remote: The address of a server of Spark Connect, instead.
        ship: Whether the driver's wheel is sent to the executors first.
        timeout: Seconds that Spark has for each thing that it is asked.
        json: Whether the report is JSON.
    """

    master: str = "local[2]"
    remote: str | None = None
    ship: bool = False
    timeout: float = 120.0
    json: bool = False

    @property
    def is_client(self) -> bool:
        """Whether Spark itself runs somewhere else, so that no Java is needed here."""
        return self.remote is not None and not self.remote.startswith("local")


def add_options(doctor: argparse.ArgumentParser) -> None:
    """Adds the options to the command line."""
    usual = DoctorSettings()
    where = doctor.add_mutually_exclusive_group()
    where.add_argument(
        "--master",
        default=usual.master,
        metavar="URL",
        help=f"the Spark master, such as spark://host:7077 or yarn (default: {usual.master})",
    )
    where.add_argument(
        "--remote", metavar="URL", help="a server of Spark Connect instead, such as sc://host:15002"
    )
    doctor.add_argument(
        "--ship",
        action="store_true",
        help="send the driver's wheel to the executors first, as sparkawait.ship does",
    )
    doctor.add_argument(
        "--timeout",
        type=_timeout,
        default=usual.timeout,
        metavar="TIME",
        help=f"how long Spark may take for each thing asked (default: {usual.timeout:g}s)",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")


def _timeout(text: str) -> float:
    try:
        return positive_duration(text, "timeout")
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(settings: DoctorSettings) -> bool:
    """Prints the report; tells whether nothing is in the way."""
    from sparkawait.doctor.program import examine

    report = examine(settings)
    print(report.to_json() if settings.json else report)
    return report.is_well
