# SPDX-License-Identifier: Apache-2.0
"""Functions that the extension module carries out: `http`, `redis` and `postgres`.

```text
  sa.http.get(..)         http, http_options, http_hosts           --+
  sa.redis.hash(..)       redis, redis_function, redis_commands    --+--> NativeFunction --> Plan
  sa.postgres.lookup(..)  postgres                                 --+
```

Each checks on the driver what it is given and makes a description, which travels without its
secrets. The calls are made in Rust. `certificates` are the same for all.
"""
