# SPDX-License-Identifier: Apache-2.0
"""The demo: every flight that left New York in 2013, enriched over HTTP, written to Parquet.

Read `functions` and `job` to see what a user writes; `recipe` is what people write today. Needs the
packages of ``pip install 'sparkawait[demo]'``.
"""
