# SPDX-License-Identifier: Apache-2.0
"""sparkawait beside what else calls a service for each row: ``python -m benches.compare --help``.

Each peer is a file in `peers`, runs as processes of its own in a virtual environment of its own,
and proves what it put out.
"""
