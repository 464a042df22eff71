// SPDX-License-Identifier: Apache-2.0
//! What a server counts.

use crate::counters::counters;

counters! {
    /// Requests received.
    requests,
    /// Requests that were answered with status 200, and so paid for, also where the answer got lost.
    answered,
    /// Requests answered with 429 for the limit of requests.
    refused_requests,
    /// Requests answered with 429 for the limit of tokens.
    refused_tokens,
    /// Requests answered with 429 for the limit of calls at a time.
    refused_concurrency,
    /// Requests that met a fault.
    faults,
    /// Requests answered with 400, 401 or 404.
    invalid,
    /// Tokens of the prompts that were answered.
    input_tokens,
    /// Those of them that were known from an earlier prompt.
    cached_tokens,
    /// Tokens of the answers.
    output_tokens,
    /// Texts that were made vectors.
    texts,
    /// Requests received and not answered yet.
    in_flight,
    /// The most requests that were in flight at once.
    max_in_flight,
}
