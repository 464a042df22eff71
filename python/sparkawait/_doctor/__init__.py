# SPDX-License-Identifier: Apache-2.0
"""The program `sparkawait doctor`: says what is in the way of a job, as a report to paste."""
