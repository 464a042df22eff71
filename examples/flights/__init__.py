# SPDX-License-Identifier: Apache-2.0
"""The demo: every flight that left New York in 2013, enriched over HTTP, written to Parquet.

Read `job` to see what a user writes; `recipe` is what people write today. The folder is linked into
the package as `sparkawait._flights`, which comes with the wheel: ``sparkawait demo`` runs it, and
executors find its functions. Needs the packages of ``pip install 'sparkawait[demo]'``.
"""
