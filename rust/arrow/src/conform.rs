// SPDX-License-Identifier: Apache-2.0
//! Arriving batches brought to the schema that was declared for them.
//!
//! Everything behind this file sees columns of exactly the declared types, so
//! that kernels may mix rows of any two batches.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, RecordBatch, RecordBatchOptions},
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Fields, Schema, SchemaRef},
    util::display::FormatOptions,
};

use crate::error::{Error, Side};

/// An overflow is an error, not a null.
const CAST: CastOptions<'static> =
    CastOptions { safe: false, format_options: FormatOptions::new() };

/// Checks batches against a declared schema, and adapts the ones that may be.
///
/// | | columns are found | types may differ in |
/// |---|---|---|
/// | [`Side::Input`] | by position, and must have the declared names | names and nullability inside of nested types |
/// | [`Side::Result`] | by name | also width, offset size, unit, where the values fit |
#[derive(Debug)]
pub struct Conform {
    side: Side,
    schema: SchemaRef,
    /// The schema with nulls allowed: nulls are counted here, with a better
    /// message than Arrow's.
    nullable: SchemaRef,
    /// Positions of the fields declared without nulls.
    required: Vec<usize>,
    /// The schema that arrived last and what it takes to adapt it: batches of
    /// one producer share a schema, and small chunks make the check expensive.
    known: Option<(SchemaRef, Plan)>,
}

/// What it takes to bring a batch to the declared schema.
#[derive(Clone, Debug)]
enum Plan {
    AsIs,
    /// For each declared column, its position in the batch.
    Adapt(Arc<[usize]>),
}

impl Conform {
    /// Declares the schema of what arrives on one side of the operator.
    pub fn new(side: Side, schema: SchemaRef) -> Self {
        let required = (0..schema.fields().len()).filter(|&i| !schema.field(i).is_nullable());
        let required = required.collect();
        let nullable = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
        let nullable = Arc::new(Schema::new(nullable.collect::<Fields>()));
        Self { side, schema, nullable, required, known: None }
    }

    /// The declared schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns `batch` with columns of exactly the declared types.
    ///
    /// # Errors
    ///
    /// Columns that are missing or of another kind, values that do not fit, and nulls where none
    /// may be.
    pub fn conform(&mut self, batch: RecordBatch) -> Result<RecordBatch, Error> {
        let batch = match self.plan(batch.schema_ref())? {
            Plan::AsIs => batch,
            Plan::Adapt(positions) => self.adapt(&batch, &positions)?,
        };
        self.check_nulls(&batch)?;
        Ok(batch)
    }

    /// Returns whether [`conform`](Self::conform) would return `batch` untouched, as far as that is
    /// seen at once: the schema is that of the last one, and any column may have nulls.
    #[inline]
    pub(crate) fn is_known_as_is(&self, batch: &RecordBatch) -> bool {
        let known = self.known.as_ref();
        let is_known = |(known, plan): &(SchemaRef, Plan)| {
            matches!(plan, Plan::AsIs) && Arc::ptr_eq(known, batch.schema_ref())
        };
        self.required.is_empty() && known.is_some_and(is_known)
    }

    fn plan(&mut self, arriving: &SchemaRef) -> Result<Plan, Error> {
        if let Some((known, plan)) = &self.known
            && (Arc::ptr_eq(known, arriving) || known == arriving)
        {
            return Ok(plan.clone());
        }
        let plan = self.new_plan(arriving)?;
        self.known = Some((Arc::clone(arriving), plan.clone()));
        Ok(plan)
    }

    fn new_plan(&self, arriving: &Schema) -> Result<Plan, Error> {
        let (expected, got) = (self.schema.fields().len(), arriving.fields().len());
        if expected != got {
            return Err(Error::ColumnCount { side: self.side, expected, got });
        }
        let positions = (0..expected)
            .map(|position| self.find(position, arriving))
            .collect::<Result<Arc<[usize]>, Error>>()?;
        let as_is = positions.iter().enumerate().all(|(declared, &position)| {
            declared == position
                && self.schema.field(declared).data_type() == arriving.field(position).data_type()
        });
        Ok(if as_is { Plan::AsIs } else { Plan::Adapt(positions) })
    }

    /// Finds the column of `arriving` that fits the declared column at `position`.
    fn find(&self, position: usize, arriving: &Schema) -> Result<usize, Error> {
        let side = self.side;
        let declared = self.schema.field(position);
        let found = match side {
            Side::Input if arriving.field(position).name() == declared.name() => position,
            Side::Input => {
                let (expected, got) = (declared.name().clone(), arriving.field(position).name());
                return Err(Error::ColumnName { side, position, expected, got: got.clone() });
            }
            Side::Result => arriving
                .index_of(declared.name())
                .map_err(|_| Error::MissingColumn { side, column: declared.name().clone() })?,
        };
        let (expected, got) = (declared.data_type(), arriving.field(found).data_type());
        let leaf = if side == Side::Input { PartialEq::eq } else { is_castable };
        if fits(got, expected, leaf) {
            return Ok(found);
        }
        let (expected, got) = (expected.clone(), got.clone());
        Err(Error::ColumnType { side, column: declared.name().clone(), expected, got })
    }

    fn adapt(&self, batch: &RecordBatch, positions: &[usize]) -> Result<RecordBatch, Error> {
        let columns = positions
            .iter()
            .enumerate()
            .map(|(declared, &position)| self.cast(declared, batch.column(position)))
            .collect::<Result<Vec<_>, Error>>()?;
        let rows = batch.num_rows();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.nullable), columns, &options)
            .map_err(|source| Error::Kernel { rows, source })
    }

    fn cast(&self, declared: usize, column: &ArrayRef) -> Result<ArrayRef, Error> {
        let field = self.schema.field(declared);
        if column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        cast_with_options(column, field.data_type(), &CAST).map_err(|source| Error::Cast {
            side: self.side,
            column: field.name().clone(),
            expected: field.data_type().clone(),
            got: column.data_type().clone(),
            source,
        })
    }

    fn check_nulls(&self, batch: &RecordBatch) -> Result<(), Error> {
        for &position in &self.required {
            let count = batch.column(position).logical_null_count();
            if count > 0 {
                let column = self.schema.field(position).name().clone();
                return Err(Error::UnexpectedNull { side: self.side, column, count });
            }
        }
        Ok(())
    }
}

/// Compares two types, nested ones by their children and the rest by `leaf`.
///
/// Producers disagree on the names inside of lists and maps (`item` and
/// `element`, `key` and `keys`) and on nullability there; names inside of a
/// struct are data and must agree.
pub(crate) fn fits(
    got: &DataType,
    expected: &DataType,
    leaf: fn(&DataType, &DataType) -> bool,
) -> bool {
    use DataType::{FixedSizeList, LargeList, LargeListView, List, ListView, Map, Struct};
    match (got, expected) {
        (List(a), List(b))
        | (LargeList(a), LargeList(b))
        | (ListView(a), ListView(b))
        | (LargeListView(a), LargeListView(b)) => fits(a.data_type(), b.data_type(), leaf),
        (FixedSizeList(a, m), FixedSizeList(b, n)) => {
            m == n && fits(a.data_type(), b.data_type(), leaf)
        }
        (Map(a, sorted_a), Map(b, sorted_b)) => {
            sorted_a == sorted_b && entries_fit(a.data_type(), b.data_type(), leaf)
        }
        (Struct(a), Struct(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| a.name() == b.name() && fits(a.data_type(), b.data_type(), leaf))
        }
        (a, b) => leaf(a, b),
    }
}

/// Compares the entries of two maps by position.
fn entries_fit(
    got: &DataType,
    expected: &DataType,
    leaf: fn(&DataType, &DataType) -> bool,
) -> bool {
    let (DataType::Struct(got), DataType::Struct(expected)) = (got, expected) else { return false };
    got.len() == expected.len()
        && got.iter().zip(expected).all(|(a, b)| fits(a.data_type(), b.data_type(), leaf))
}

/// Whether a result of type `got` stands for the declared type `expected`.
///
/// True for another representation of the same values: offset size and views,
/// integer and float width, time unit, a dictionary of them, an integer for a
/// float, a decimal that loses no digit. A value out of range is found later,
/// by the cast. Never between numbers and strings, nor between times with and
/// without a zone: that would guess.
fn is_castable(got: &DataType, expected: &DataType) -> bool {
    use DataType::{
        Date32, Date64, Dictionary, Duration, FixedSizeList, LargeList, List, Null, Time32, Time64,
        Timestamp,
    };
    match (got, expected) {
        (a, b) if a == b => true,
        (Null, _)
        | (Date32 | Date64, Date32 | Date64)
        | (Duration(_), Duration(_))
        | (Time32(_) | Time64(_), Time32(_) | Time64(_)) => true,
        (Timestamp(_, a), Timestamp(_, b)) => a.is_some() == b.is_some(),
        (Dictionary(_, a), Dictionary(_, b)) => fits(a, b, is_castable),
        (Dictionary(_, values), expected) => fits(values, expected, is_castable),
        (List(a) | LargeList(a) | FixedSizeList(a, _), List(b) | LargeList(b)) => {
            fits(a.data_type(), b.data_type(), is_castable)
        }
        (a, b) if a.is_decimal() && b.is_decimal() => scale(a) <= scale(b),
        (a, b) => {
            (a.is_string() && b.is_string())
                || (a.is_binary() && b.is_binary())
                || (a.is_integer() && b.is_numeric() && !b.is_decimal())
                || (a.is_floating() && b.is_floating())
        }
    }
}

/// Digits after the point of a decimal type.
fn scale(decimal: &DataType) -> i8 {
    match decimal {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
