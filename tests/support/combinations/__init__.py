# SPDX-License-Identifier: Apache-2.0
"""Options in combination: cases drawn from seeds, functions that note calls, a naive model."""
