# SPDX-License-Identifier: Apache-2.0
"""Runs the command line as ``python -m sparkawait``."""

import sys

from sparkawait.cli import main

if __name__ == "__main__":
    sys.exit(main())
