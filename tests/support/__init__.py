# SPDX-License-Identifier: Apache-2.0
"""Helpers that several test suites share."""
