# SPDX-License-Identifier: Apache-2.0
"""Calls to models: chat and embeddings, over `sparkawait.http`.

```text
  chat(prompt, schema)  --> a request a row, in the dialect of the service --+
  embed(text)           --> a request for many rows -------------------------+--> a function like
  estimate(df, call)    <-- what it would cost                                    any other
```

No model and no price is built in. What `chat` and `embed` return is called by the wait functions,
made a column, or carried out without Spark; its options are those of every function, and limits of
the account, timeouts and retries that fit models are set. No Python runs for a row unless a class
has rules for answers, or `repair` is given.
"""

from sparkawait.llm.calls import ChatFunction, EmbedFunction, chat, embed
from sparkawait.llm.estimates import Estimate, estimate

__all__ = ["ChatFunction", "EmbedFunction", "Estimate", "chat", "embed", "estimate"]
