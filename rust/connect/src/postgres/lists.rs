// SPDX-License-Identifier: Apache-2.0
//! Arrays of PostgreSQL as lists.
//!
//! ```text
//! dimensions  flags  type of elements | size  lower bound | length  bytes | length  bytes | ..
//! ```

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;
use sparkawait_task::error::TaskError;

/// The elements of all lists, one after the other.
pub(super) trait Elements: Sized {
    /// Appends a value.
    fn push(&mut self, bytes: &[u8]);

    /// Appends a null.
    fn push_null(&mut self);

    /// Returns the number of values and nulls.
    fn len(&self) -> usize;

    /// Returns the values, and those that do not fit, each with what is wrong with it.
    fn finish(self) -> Result<(ArrayRef, Vec<(usize, String)>), TaskError>;
}

/// Collects the arrays of one column.
pub(super) struct ListValues<E> {
    elements: E,
    /// Where each list begins in the elements, and where the last one ends.
    offsets: Vec<i32>,
    is_valid: Vec<bool>,
}

impl<E: Elements> ListValues<E> {
    /// Makes a column of `rows` lists of `elements`.
    pub(super) fn new(elements: E, rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { elements, offsets, is_valid: Vec::with_capacity(rows) }
    }

    /// Appends an array; `None`, and no list, if it has several dimensions or does not fit.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let mut rest = bytes;
        let dimensions = integer(&mut rest)?;
        // Whether there are nulls, and the type: both are known.
        integer(&mut rest)?;
        integer(&mut rest)?;
        let size = match dimensions {
            0 => 0,
            1 => {
                let size = integer(&mut rest)?;
                integer(&mut rest)?;
                size
            }
            _ => return None,
        };
        for _ in 0..size {
            if let Ok(length) = usize::try_from(integer(&mut rest)?) {
                self.elements.push(rest.get(..length)?);
                rest = &rest[length..];
            } else {
                self.elements.push_null();
            }
        }
        self.end(true)
    }

    /// Appends no list.
    pub(super) fn push_null(&mut self) {
        // Bounded by the bytes of a reply.
        let _ = self.end(false);
    }

    fn end(&mut self, is_valid: bool) -> Option<()> {
        self.offsets.push(i32::try_from(self.elements.len()).ok()?);
        self.is_valid.push(is_valid);
        Some(())
    }

    /// Returns the lists, and those that have an element that does not fit.
    pub(super) fn finish(
        self,
        field: &FieldRef,
    ) -> Result<(ArrayRef, Vec<(usize, String)>), TaskError> {
        let internal = |error| TaskError::Internal(format!("`{}`: {error}", field.name()));
        let DataType::List(element) = field.data_type() else {
            return Err(internal("it is not a list".to_owned()));
        };
        let (elements, mut bad) = self.elements.finish()?;
        let has_wrong_nulls = !element.is_nullable() && elements.null_count() > 0;
        if has_wrong_nulls {
            // Behind what else is wrong with an element, which is null too.
            let nulls = (0..elements.len()).filter(|index| elements.is_null(*index));
            let text = "it is declared as not null, and PostgreSQL has none";
            bad.extend(nulls.map(|index| (index, text.to_owned())));
        }
        let row_of = |index: usize| {
            let before = self
                .offsets
                .partition_point(|end| usize::try_from(*end).is_ok_and(|end| end <= index));
            before.saturating_sub(1)
        };
        let bad = bad.into_iter().map(|(index, text)| {
            (row_of(index), format!("an element of `{}`: {text}", field.name()))
        });
        let bad: Vec<_> = bad.collect();
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        let nulls = NullBuffer::from(self.is_valid);
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        let lists = if has_wrong_nulls {
            without(&bad, element, offsets, elements, nulls)
        } else {
            ListArray::try_new(FieldRef::clone(element), offsets, elements, nulls)
        };
        let lists = lists.map_err(|error| internal(error.to_string()))?;
        Ok((Arc::new(lists), bad))
    }
}

/// Makes lists; the `bad` ones are null, and leave no element behind.
fn without(
    bad: &[(usize, String)],
    element: &FieldRef,
    offsets: OffsetBuffer<i32>,
    elements: ArrayRef,
    nulls: Option<NullBuffer>,
) -> Result<ListArray, ArrowError> {
    let nullable = element.as_ref().clone().with_nullable(true);
    let lists = ListArray::try_new(Arc::new(nullable), offsets, elements, nulls)?;
    let mut kept: Vec<_> = (0..lists.len()).map(|row| u32::try_from(row).ok()).collect();
    for (row, _) in bad {
        kept[*row] = None;
    }
    let lists = take(&lists, &UInt32Array::from(kept), None)?;
    let (_, offsets, elements, nulls) = lists.as_list::<i32>().clone().into_parts();
    ListArray::try_new(FieldRef::clone(element), offsets, elements, nulls)
}

fn integer(rest: &mut &[u8]) -> Option<i32> {
    let (integer, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(i32::from_be_bytes(*integer))
}
