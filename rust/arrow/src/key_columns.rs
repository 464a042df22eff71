// SPDX-License-Identifier: Apache-2.0
//! The keys of key-ordered mode and of channels, computed for a whole batch at once.

use std::hash::{BuildHasher, Hash};
use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, RecordBatch, UInt64Array},
    buffer::NullBuffer,
    compute::{Partitions, partition, take},
    datatypes::{DataType, Schema},
    row::{RowConverter, Rows, SortField},
};
use foldhash::fast::FixedState;
use sparkawait_core::Key;

use crate::error::Error;
use crate::key_values::{is_key_type, key_type, normalized};

/// Fixed, so that a row has the same key in every worker and after a restart.
const SEED: u64 = 0x5eed_0f4b_7e5a_11ed;

/// Rows of a run of equal values, on average, from which on only its first one is hashed.
const WORTH_A_RUN: usize = 4;

/// Rows at the head of a batch that tell whether it is worth looking for runs.
const SAMPLE: usize = 128;

/// The key of each row of a batch; `None` for rows without one.
pub type Keys = Arc<[Option<Key>]>;

/// Computes the [`Key`] of each row from the values of some columns.
///
/// A key is a 64-bit hash of the values. Rows whose values differ but hash alike are served one
/// after the other: that costs parallelism, never order. [`key_values`](crate::key_values) defines
/// which values are equal.
#[derive(Debug)]
pub struct KeyColumns {
    /// Positions in the input schema.
    columns: Vec<usize>,
    converter: RowConverter,
    hasher: FixedState,
    /// Encoded values of the last batch; kept for its memory.
    encoded: Rows,
}

impl KeyColumns {
    /// Looks the columns `names` up in `schema`.
    ///
    /// # Errors
    ///
    /// When no name is given, a name is unknown or ambiguous, or the type of a
    /// column cannot be a key.
    pub fn new<S: AsRef<str>>(schema: &Schema, names: &[S]) -> Result<Self, Error> {
        if names.is_empty() {
            return Err(Error::NoKeyColumns);
        }
        let columns = names
            .iter()
            .map(|name| column_named(schema, name.as_ref()))
            .collect::<Result<Vec<_>, Error>>()?;
        for &column in &columns {
            check_key_type(schema, column)?;
        }
        let types = columns.iter().map(|&column| key_type(schema.field(column).data_type()));
        let fields = types.map(SortField::new).collect();
        let converter = RowConverter::new(fields).map_err(Error::KeyEncoding)?;
        let encoded = converter.empty_rows(0, 0);
        Ok(Self { columns, converter, hasher: FixedState::with_seed(SEED), encoded })
    }

    /// The key of each row of `batch`; `None` where a key column is null.
    ///
    /// # Errors
    ///
    /// When `batch` does not have the schema that the columns were looked up in.
    pub fn keys(&mut self, batch: &RecordBatch) -> Result<Keys, Error> {
        let columns = self.columns.iter().map(|&column| normalized(batch.column(column)));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(Error::KeyEncoding)?;
        let nulls = columns.iter().fold(None, |nulls, column| {
            NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
        });
        let is_valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        if let [column] = columns.as_slice()
            && let Some(keys) = self.plain_keys(column, is_valid)
        {
            return Ok(keys);
        }
        let Some(runs) = runs(&columns) else {
            self.encode(&columns)?;
            let rows = 0..batch.num_rows();
            return Ok(rows.map(|row| is_valid(row).then(|| self.key(row))).collect());
        };
        let starts = UInt64Array::from_iter_values(runs.iter().map(|run| run.start as u64));
        let firsts = columns.iter().map(|column| take(column, &starts, None));
        let firsts = firsts.collect::<Result<Vec<_>, _>>().map_err(Error::KeyEncoding)?;
        self.encode(&firsts)?;
        let mut keys = Vec::with_capacity(batch.num_rows());
        for (number, run) in runs.into_iter().enumerate() {
            let key = is_valid(run.start).then(|| self.key(number));
            keys.extend(repeat_n(key, run.len()));
        }
        Ok(keys.into())
    }

    /// Hashes the values of a column as they lie in memory, if each is a number of its own.
    fn plain_keys(&self, column: &ArrayRef, is_valid: impl Fn(usize) -> bool) -> Option<Keys> {
        if matches!(column.data_type(), DataType::Interval(_)) {
            return None; // Its parts are narrower than the whole.
        }
        let data = column.to_data();
        match column.data_type().primitive_width()? {
            1 => Some(self.hash_each(data.buffer::<u8>(0), data.len(), is_valid)),
            2 => Some(self.hash_each(data.buffer::<u16>(0), data.len(), is_valid)),
            4 => Some(self.hash_each(data.buffer::<u32>(0), data.len(), is_valid)),
            8 => Some(self.hash_each(data.buffer::<u64>(0), data.len(), is_valid)),
            _ => None,
        }
    }

    fn hash_each<T: Hash>(
        &self,
        values: &[T],
        rows: usize,
        is_valid: impl Fn(usize) -> bool,
    ) -> Keys {
        let key = |(row, value)| is_valid(row).then(|| Key::new(self.hasher.hash_one(value)));
        values[..rows].iter().enumerate().map(key).collect()
    }

    /// Encodes rows, so that equal ones are equal bytes.
    fn encode(&mut self, columns: &[ArrayRef]) -> Result<(), Error> {
        self.encoded.clear();
        self.converter.append(&mut self.encoded, columns).map_err(Error::KeyEncoding)
    }

    /// Returns the key of a row that was encoded.
    fn key(&self, row: usize) -> Key {
        Key::new(self.hasher.hash_one(self.encoded.row(row).data()))
    }
}

/// Returns the runs of rows with equal values, if they are long enough to be worth it.
fn runs(columns: &[ArrayRef]) -> Option<Vec<Range<usize>>> {
    let rows = columns.first().map_or(0, Array::len);
    if rows > SAMPLE {
        let head: Vec<_> = columns.iter().map(|column| column.slice(0, SAMPLE)).collect();
        long_runs(&head, SAMPLE)?;
    }
    Some(long_runs(columns, rows)?.ranges())
}

fn long_runs(columns: &[ArrayRef], rows: usize) -> Option<Partitions> {
    // A type whose values cannot be compared can still be encoded.
    let runs = partition(columns).ok()?;
    (runs.len() * WORTH_A_RUN <= rows).then_some(runs)
}

fn check_key_type(schema: &Schema, column: usize) -> Result<(), Error> {
    let field = schema.field(column);
    if is_key_type(field.data_type()) {
        return Ok(());
    }
    Err(Error::KeyType { column: field.name().clone(), data_type: field.data_type().clone() })
}

/// Finds the one input column that is called `name`.
pub(crate) fn column_named(schema: &Schema, name: &str) -> Result<usize, Error> {
    let fields = schema.fields();
    let mut found = fields.iter().enumerate().filter(|(_, field)| field.name() == name);
    match (found.next(), found.count()) {
        (Some((position, _)), 0) => Ok(position),
        (Some(_), others) => {
            Err(Error::AmbiguousColumn { column: name.to_owned(), count: others + 1 })
        }
        (None, _) => {
            let names: Vec<_> = fields.iter().map(|field| format!("`{}`", field.name())).collect();
            Err(Error::UnknownColumn { column: name.to_owned(), available: names.join(", ") })
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{BinaryArray, Float64Array, Int64Array, StringArray, record_batch},
        datatypes::Field,
    };

    use super::*;

    fn keys(batch: &RecordBatch, names: &[&str]) -> Vec<Option<Key>> {
        KeyColumns::new(batch.schema_ref(), names).unwrap().keys(batch).unwrap().to_vec()
    }

    #[test]
    fn equal_values_have_equal_keys_in_every_batch() {
        let first = record_batch!(("a", Int64, [1, 2, 1]), ("b", Utf8, ["x", "x", "x"])).unwrap();
        let second = record_batch!(("a", Int64, [2]), ("b", Utf8, ["x"])).unwrap();
        let mut columns = KeyColumns::new(first.schema_ref(), &["a", "b"]).unwrap();

        let (first, second) = (columns.keys(&first).unwrap(), columns.keys(&second).unwrap());

        assert_eq!(first[0], first[2]);
        assert_eq!(first[1], second[0]);
        assert_ne!(first[0], first[1]);
    }

    #[test]
    fn a_null_in_any_key_column_makes_the_key_null() {
        let batch = record_batch!(
            ("a", Int64, [Some(1), None, Some(1)]),
            ("b", Utf8, [Some("x"), Some("x"), None])
        )
        .unwrap();

        let keys = keys(&batch, &["a", "b"]);

        assert!(keys[0].is_some());
        assert_eq!(keys[1..], [None, None]);
    }

    #[test]
    fn equal_floats_have_one_key_however_they_are_stored() {
        let nan = f64::from_bits(0xfff8_0000_0000_0001);
        let values = [0.0, -0.0, f64::NAN, nan, 1.0];
        let numbers: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"; 5]));
        let batch = RecordBatch::try_from_iter([("a", numbers), ("b", texts)]).unwrap();

        for names in [["a"].as_slice(), &["a", "b"]] {
            let keys = keys(&batch, names);

            assert_eq!((keys[0], keys[2]), (keys[1], keys[3]));
            assert!(keys[0] != keys[2] && keys[2] != keys[4]);
        }
    }

    #[test]
    fn rows_of_a_run_have_the_keys_that_they_have_alone() {
        let zeros = [[0.0; 5].as_slice(), &[1.0; 7]].concat();
        let texts = [[Some("x"); 8].as_slice(), &[None; 4]].concat();
        let columns: [(_, ArrayRef); 2] =
            [("a", Arc::new(Float64Array::from(zeros))), ("b", Arc::new(StringArray::from(texts)))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        assert!(runs(batch.columns()).is_some_and(|runs| runs == [0..5, 5..8, 8..12]));

        let together = keys(&batch, &["a", "b"]);

        let alone = (0..12).flat_map(|row| keys(&batch.slice(row, 1), &["a", "b"]));
        assert_eq!(together, alone.collect::<Vec<_>>());
        assert_ne!(together[4], together[5]);
    }

    #[test]
    fn runs_are_not_sought_behind_a_head_without_any() {
        let mixed = (0_i64..).take(SAMPLE).chain([7; 1_000]);
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(mixed));
        let texts = arrow::compute::cast(&numbers, &DataType::Utf8).unwrap();
        let batch = RecordBatch::try_from_iter([("a", texts)]).unwrap();
        assert_eq!(runs(batch.columns()), None);
        assert!(runs(batch.slice(SAMPLE, 1_000).columns()).is_some());

        let keys_of_all = keys(&batch, &["a"]);

        assert_eq!(keys_of_all[SAMPLE..], keys(&batch.slice(SAMPLE, 1_000), &["a"]));
    }

    #[test]
    fn texts_have_the_keys_of_their_bytes() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        let mut columns = KeyColumns::new(
            RecordBatch::try_from_iter([("a", Arc::clone(&texts))]).unwrap().schema_ref(),
            &["a"],
        )
        .unwrap();
        let bytes: ArrayRef =
            Arc::new(BinaryArray::from(vec![b"b".as_slice(), b"\xFE", b"\xFF", b"\xFE"]));
        let mut keys = |column| {
            let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
            columns.keys(&batch).unwrap()
        };

        let (of_texts, of_bytes) = (keys(texts), keys(bytes));

        assert_eq!((of_texts[1], of_bytes[1]), (of_bytes[0], of_bytes[3]));
        assert_ne!(of_bytes[1], of_bytes[2]);
    }

    #[test]
    fn values_of_neighbouring_columns_are_not_confused() {
        let batch = record_batch!(("a", Utf8, ["xy", "x"]), ("b", Utf8, ["z", "yz"])).unwrap();

        let keys = keys(&batch, &["a", "b"]);

        assert_ne!(keys[0], keys[1]);
    }

    #[test]
    fn sliced_batch_has_the_keys_of_its_rows() {
        let batch = record_batch!(("a", Int64, [Some(1), None, Some(3), Some(4)])).unwrap();

        assert_eq!(keys(&batch.slice(1, 3), &["a"]), keys(&batch, &["a"])[1..]);
    }

    #[test]
    fn every_width_of_number_has_keys_by_value() {
        let batch = record_batch!(
            ("1", Int8, [Some(1), Some(2), None, Some(1)]),
            ("2", UInt16, [Some(1), Some(2), None, Some(1)]),
            ("4", Float32, [Some(1.0), Some(2.0), None, Some(1.0)]),
            ("8", Int64, [Some(1), Some(2), None, Some(1)])
        )
        .unwrap();

        for name in ["1", "2", "4", "8"] {
            let keys = keys(&batch, &[name]);

            assert_eq!((keys.len(), keys[0], keys[2]), (4, keys[3], None));
            assert_ne!(keys[0], keys[1]);
        }
    }

    #[test]
    fn unknown_key_column_is_refused_with_the_names_that_exist() {
        let batch = record_batch!(("a", Int64, [1]), ("b", Int64, [1])).unwrap();

        let error = KeyColumns::new(batch.schema_ref(), &["c"]).unwrap_err();

        assert_eq!(error.to_string(), "column `c` is not in the input; it has `a`, `b`");
    }

    #[test]
    fn ambiguous_key_column_is_refused() {
        let field = Field::new("a", DataType::Int64, true);

        let error = KeyColumns::new(&Schema::new(vec![field.clone(), field]), &["a"]).unwrap_err();

        assert_eq!(error.to_string(), "column `a` is ambiguous: 2 input columns have this name");
    }

    #[test]
    fn missing_key_is_refused() {
        let error = KeyColumns::new::<&str>(&Schema::empty(), &[]).unwrap_err();

        assert_eq!(error.to_string(), "key must name at least one column");
    }
}
