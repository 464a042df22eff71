// SPDX-License-Identifier: Apache-2.0
//! What happens next: queues, mailbox, operator, retry. Sans-IO.
