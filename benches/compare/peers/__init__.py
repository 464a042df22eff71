# SPDX-License-Identifier: Apache-2.0
"""The peers, one a file; what they have in common is in `benches.compare.peer`."""
