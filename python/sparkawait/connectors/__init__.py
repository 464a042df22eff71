# SPDX-License-Identifier: Apache-2.0
"""Functions that the extension module carries out: `http`, `redis` and `postgres`.

```text
  sa.http.get(..)         http_options, http_body --> http_request --> http    --+
  sa.redis.hash(..)       redis_function --> redis                             --+--> Plan
  sa.postgres.lookup(..)  postgres                                             --+
```

Each checks on the driver what it is given and makes a description, which travels without its
secrets. The calls are made in Rust. `certificates` are the same for all; those of HTTP are fields
of its client, in `http_client`.
"""
