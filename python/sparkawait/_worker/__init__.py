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

One room for each of four questions:

* *the loop*: `event_loop`, `watchdog`, `coroutines`, `shared_clients`; `blocking_calls` are of
  plain functions, in threads; `address_space` comes before all.
* *calls*: `runner`, `batching`, `life_cycle`, `replies`, `retry_after`, `warm_up`; `metrics` and
  `remarks` (what logs say) tell of them.
* *values*: `cells` (column to Python), and `results` with `conversion` and `leaf_values` (Python to
  column).
* *streams*: `feeder` pulls the input; `holder` keeps tasks that outlive a micro-batch, `step` is
  one of them, and `bundles` are its rows.

`cells` and `retry_after` are what the extension module imports: their names are its, too.
"""
