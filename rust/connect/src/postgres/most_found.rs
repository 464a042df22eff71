// SPDX-License-Identifier: Apache-2.0
//! How much may be found, in bytes.

use crate::postgres::failure::Fault;

/// Most that is found for the rows of a query together. A column has less than 2 GiB, and text may
/// take up to twice what was sent: a UUID has 16 bytes, and 36 characters.
const MOST_TOGETHER: usize = 900 << 20;

/// The bounds of what is read, which is counted row by row as it comes.
///
/// ```text
/// a query for many rows    that of one row, and what a column holds whatever it is made of
/// one row                  `max_reply_bytes`
/// ```
///
/// A query that finds more is run again for half of its rows each, so a row for which it is too
/// much alone is told from its neighbours. One that writes fails: it may have been carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MostFound {
    row: usize,
    together: usize,
}

impl MostFound {
    /// Makes the bounds where a row may find `bytes` bytes.
    pub(crate) fn of_row(bytes: usize) -> Self {
        Self { row: bytes, together: bytes.min(MOST_TOGETHER) }
    }

    /// Fails if `bytes` are more than one row may find.
    pub(crate) fn check_row(self, bytes: usize) -> Result<(), Fault> {
        within(self.row, bytes)
    }

    /// Fails if `bytes` are more than the rows of a query may find together.
    pub(crate) fn check_together(self, bytes: usize) -> Result<(), Fault> {
        within(self.together, bytes)
    }
}

fn within(most: usize, bytes: usize) -> Result<(), Fault> {
    if bytes <= most { Ok(()) } else { Err(Fault::too_large(most)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::failure::Class;

    #[test]
    fn a_small_bound_is_that_of_a_row_and_of_a_query() {
        let most = MostFound::of_row(1000);

        assert!(most.check_row(1000).is_ok() && most.check_together(1000).is_ok());
        assert!(most.check_row(1001).is_err_and(|it| it.is(Class::TooLarge)));
        assert!(most.check_together(1001).is_err_and(|it| it.is(Class::TooLarge)));
    }

    #[test]
    fn a_query_never_finds_more_than_a_column_holds() {
        let most = MostFound::of_row(1 << 40);

        assert!(most.check_row(1 << 40).is_ok());
        assert!(most.check_together(MOST_TOGETHER).is_ok());
        assert!(most.check_together(MOST_TOGETHER + 1).is_err_and(|it| it.is(Class::TooLarge)));
        // UUIDs, each behind its length, as characters.
        assert!(i32::try_from(MOST_TOGETHER / 20 * 36).is_ok());
    }
}
