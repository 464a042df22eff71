# SPDX-License-Identifier: Apache-2.0
"""What runs where the calls are made: in a Python worker of Spark, or here by `sparkawait.arrow`.

```text
  task thread            feeder --> _core.Task --> batches    life_cycle opens and closes it
                                     |      ^
                               rows  |      |  results, replies: many at once
                                     v      |
  event loop thread      runner: coroutines or batching --> the user's function
                         watchdog: is the loop alive?
```

A value's way is `cells` (column to Python), `shapes` (which rows are meant), and `results` with
`conversion` and `leaf_values` (Python to column). `address_space` comes before all others.
"""
