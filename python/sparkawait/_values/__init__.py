# SPDX-License-Identifier: Apache-2.0
"""Values of Python and columns of Arrow, both ways. Used on the driver and in workers."""
