# SPDX-License-Identifier: Apache-2.0
"""Builds the documentation of the Python package; a name that cannot be documented is an error.

usage: python tools/build_docs.py FOLDER
"""

import sys
import warnings
from pathlib import Path

import pdoc
import pdoc.render

import sparkawait

MODULES = ["sparkawait", "sparkawait.testing"]


def main(folder: Path) -> None:
    """Writes HTML for `MODULES` into `folder`."""
    # The functions for Spark are imported when they are first asked for, which pdoc does not do.
    for name in sparkawait.__all__:
        setattr(sparkawait, name, getattr(sparkawait, name))
    warnings.filterwarnings("error", module="pdoc")
    pdoc.render.configure(docformat="google")
    pdoc.pdoc(*MODULES, output_directory=folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
