# SPDX-License-Identifier: Apache-2.0
"""What checks a call on the driver, and what of it travels to the executors.

```text
  ordered_wait(..), async_udf(..) --> options --> Plan --> a task of _worker, here or in an executor
                                       |
    function_checks, callables,        |      checks, which every part of the package uses
    return_types, ddl,            <----+
    arrow_types
```

Nothing here calls the user's function, or waits.
"""
