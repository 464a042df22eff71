# SPDX-License-Identifier: Apache-2.0
"""What users say of columns: texts, classes and types, as Arrow schemas."""
