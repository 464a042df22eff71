// SPDX-License-Identifier: Apache-2.0
//! Values of all types, and how Arrow may lay them out.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryArray, BooleanArray, DictionaryArray,
    FixedSizeListArray, Int16Array, ListArray, MapArray, NullArray, RecordBatch,
    RecordBatchOptions, StringArray, StructArray, make_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Int16Type, IntervalUnit, Schema, TimeUnit};
use proptest::collection::vec;
use proptest::prelude::*;

/// A type without what is layout.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    /// Of a fixed width, or null.
    Plain(DataType),
    Text,
    Bytes,
    List(Box<Self>),
    Struct(Vec<(String, Self)>),
    Map(Box<Self>, Box<Self>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bits(Vec<u8>),
    /// Elements, fields, or pairs.
    Many(Vec<Self>),
}

pub(super) fn plain() -> Vec<DataType> {
    use DataType::*;
    let units =
        [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
    let mut all = vec![
        Null,
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Date32,
        Date64,
        Decimal128(4, 2),
        Decimal128(18, -3),
        Decimal128(38, 10),
        Decimal256(50, 3),
        Decimal256(4, 2),
    ];
    for unit in units {
        all.extend([Timestamp(unit, None), Timestamp(unit, Some("Asia/Kathmandu".into()))]);
        all.push(Duration(unit));
    }
    all.extend([Time32(units[0]), Time32(units[1]), Time64(units[2]), Time64(units[3])]);
    let intervals = [IntervalUnit::YearMonth, IntervalUnit::DayTime, IntervalUnit::MonthDayNano];
    all.extend(intervals.map(Interval));
    all
}

fn any_type() -> impl Strategy<Value = Type> {
    let leaf = prop_oneof![
        6 => proptest::sample::select(plain()).prop_map(Type::Plain),
        2 => Just(Type::Text),
        2 => Just(Type::Bytes),
    ];
    leaf.prop_recursive(3, 13, 3, |inner| {
        let field = ("[ab]{0,2}", inner.clone());
        let key =
            inner.clone().prop_filter("a key is not null", |it| *it != Type::Plain(DataType::Null));
        prop_oneof![
            inner.clone().prop_map(|it| Type::List(Box::new(it))),
            vec(field, 0..4).prop_map(Type::Struct),
            (key, inner).prop_map(|(key, it)| Type::Map(Box::new(key), Box::new(it))),
        ]
    })
}

fn any_value(of: &Type) -> BoxedStrategy<Value> {
    let value = match of {
        Type::Plain(DataType::Null) => return Just(Value::Null).boxed(),
        Type::Plain(DataType::Boolean) => any::<bool>().prop_map(|it| vec![u8::from(it)]).boxed(),
        // Those that are narrower are read as these, so they must fit.
        Type::Plain(DataType::Decimal128(4, _)) => {
            (-9999_i128..=9999).prop_map(|it| it.to_le_bytes().to_vec()).boxed()
        }
        Type::Plain(DataType::Decimal128(18, _)) => {
            (-999_999_i128..=999_999).prop_map(|it| it.to_le_bytes().to_vec()).boxed()
        }
        Type::Plain(data_type) => {
            // Few bytes, so that some values are equal.
            let width = data_type.primitive_width().unwrap();
            let bits = prop_oneof![0_u8..2, any::<u8>()];
            vec(bits, width).boxed()
        }
        Type::Text => "[\\x00a\u{e4}]{0,3}|.{0,20}".prop_map(String::into_bytes).boxed(),
        Type::Bytes => vec(any::<u8>(), 0..17).boxed(),
        Type::List(element) => {
            let elements = vec(any_value(element), 0..4).prop_map(Value::Many);
            return prop_oneof![1 => Just(Value::Null), 4 => elements].boxed();
        }
        Type::Struct(fields) => {
            let fields: Vec<_> = fields.iter().map(|(_, it)| any_value(it)).collect();
            return prop_oneof![1 => Just(Value::Null), 4 => fields.prop_map(Value::Many)].boxed();
        }
        Type::Map(key, value) => {
            let key = any_value(key).prop_filter("a key is not null", |it| *it != Value::Null);
            let pair = (key, any_value(value));
            let pairs = vec(pair.prop_map(|(key, it)| Value::Many(vec![key, it])), 0..4);
            return prop_oneof![1 => Just(Value::Null), 4 => pairs.prop_map(Value::Many)].boxed();
        }
    };
    prop_oneof![1 => Just(Value::Null), 4 => value.prop_map(Value::Bits)].boxed()
}

/// Columns with their names, and their rows.
pub(super) fn any_rows() -> impl Strategy<Value = (Vec<(String, Type)>, Vec<Vec<Value>>)> {
    vec(("[ab]{0,2}", any_type()), 0..4).prop_flat_map(|columns| {
        let row: Vec<_> = columns.iter().map(|(_, it)| any_value(it)).collect();
        (Just(columns), vec(row, 0..7))
    })
}

/// Makes arrays, each in a layout that the next of some bytes chooses.
struct Layouts<'a>(&'a mut dyn Iterator<Item = u8>);

impl Layouts<'_> {
    fn choose(&mut self, many: u8) -> u8 {
        self.0.next().unwrap_or(0) % many
    }

    fn array(&mut self, of: &Type, values: &[Value]) -> ArrayRef {
        match self.choose(4) {
            // A slice of more, which begins at no multiple of eight.
            1 => {
                let mut more = vec![Value::Null; 3];
                more.extend_from_slice(values);
                more.extend(values.first().cloned());
                self.laid_out(of, &more).slice(3, values.len())
            }
            2 => {
                let rows: Vec<_> =
                    (0..values.len()).map(|it| i16::try_from(it + 1).unwrap()).collect();
                let rows = rows.into_iter().rev();
                let keys = match self.choose(2) {
                    // Nulls of the rows, or of what they stand for.
                    0 => rows.map(Some).collect::<Int16Array>(),
                    _ => rows
                        .zip(values)
                        .map(|(row, value)| (*value != Value::Null).then_some(row))
                        .collect(),
                };
                let known: Vec<_> =
                    std::iter::once(Value::Null).chain(values.iter().rev().cloned()).collect();
                let known = self.array(of, &known);
                Arc::new(DictionaryArray::<Int16Type>::new(keys, known))
            }
            _ => self.laid_out(of, values),
        }
    }

    fn laid_out(&mut self, of: &Type, values: &[Value]) -> ArrayRef {
        let present: Vec<_> = values.iter().map(|it| *it != Value::Null).collect();
        let all_are = present.iter().all(|it| *it);
        let nulls = (!all_are || self.choose(2) == 0).then(|| NullBuffer::from(present.clone()));
        match of {
            Type::Plain(DataType::Null) => Arc::new(NullArray::new(values.len())),
            Type::Plain(DataType::Boolean) => {
                let bits = values.iter().map(|it| *it == Value::Bits(vec![1]));
                Arc::new(BooleanArray::new(bits.collect(), nulls))
            }
            Type::Plain(data_type) => self.plain(data_type, values, nulls),
            Type::Text => {
                let texts = values.iter().map(|it| match it {
                    Value::Bits(bits) => Some(std::str::from_utf8(bits).unwrap()),
                    _ => None,
                });
                self.bytes(Arc::new(texts.collect::<StringArray>()))
            }
            Type::Bytes => {
                let bytes = values.iter().map(|it| match it {
                    Value::Bits(bits) => Some(bits.as_slice()),
                    _ => None,
                });
                self.bytes(Arc::new(bytes.collect::<BinaryArray>()))
            }
            Type::List(element) => {
                let (offsets, elements) = self.elements(values);
                let elements = self.array(element, &elements);
                let field = Field::new("element", elements.data_type().clone(), true);
                self.list(ListArray::new(Arc::new(field), offsets, elements, nulls))
            }
            Type::Struct(fields) => Arc::new(self.fields(fields, values, nulls)),
            Type::Map(key, value) => {
                let pairs = |it: &Value| match it {
                    Value::Many(pairs) => pairs.clone(),
                    _ => Vec::new(),
                };
                let pairs: Vec<_> = values.iter().map(pairs).collect();
                let offsets = OffsetBuffer::from_lengths(pairs.iter().map(Vec::len));
                let (keys, values): (Vec<_>, Vec<_>) =
                    pairs.into_iter().flatten().map(pair).unzip();
                let keys = self.laid_out(key, &keys);
                let values = self.array(value, &values);
                let fields =
                    [("key", keys.data_type(), false), ("value", values.data_type(), true)];
                let fields =
                    fields.map(|(name, of, is_null)| Field::new(name, of.clone(), is_null));
                let entries =
                    StructArray::new(fields.into_iter().collect(), vec![keys, values], None);
                let field = Field::new("entries", entries.data_type().clone(), false);
                Arc::new(MapArray::new(Arc::new(field), offsets, entries, nulls, false))
            }
        }
    }

    fn plain(
        &mut self,
        data_type: &DataType,
        values: &[Value],
        nulls: Option<NullBuffer>,
    ) -> ArrayRef {
        let width = data_type.primitive_width().unwrap();
        let bytes = values.iter().flat_map(|it| match it {
            Value::Bits(bits) => bits.clone(),
            _ => vec![0; width],
        });
        let data = ArrayData::builder(data_type.clone()).len(values.len()).nulls(nulls);
        let data = data.add_buffer(Buffer::from_slice_ref(bytes.collect::<Vec<u8>>())).build();
        let array = make_array(data.unwrap());
        match data_type {
            DataType::Decimal128(4, scale) if self.choose(2) == 0 => {
                cast(&array, &DataType::Decimal32(4, *scale)).unwrap()
            }
            DataType::Decimal128(18, scale) if self.choose(2) == 0 => {
                cast(&array, &DataType::Decimal64(18, *scale)).unwrap()
            }
            DataType::Timestamp(unit, Some(_)) if self.choose(2) == 0 => {
                cast(&array, &DataType::Timestamp(*unit, Some("UTC".into()))).unwrap()
            }
            _ => array,
        }
    }

    fn bytes(&mut self, array: ArrayRef) -> ArrayRef {
        let is_text = *array.data_type() == DataType::Utf8;
        let [large, view] = if is_text {
            [DataType::LargeUtf8, DataType::Utf8View]
        } else {
            [DataType::LargeBinary, DataType::BinaryView]
        };
        let runs = |of: DataType| {
            let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
            DataType::RunEndEncoded(ends, Arc::new(Field::new("values", of, true)))
        };
        let binary = array.to_data();
        let to = match self.choose(5) {
            1 => large,
            2 => view,
            3 if !array.is_empty() => runs(array.data_type().clone()),
            4 if !is_text && binary.len() == 1 && binary.null_count() == 0 => {
                let length = array.as_binary::<i32>().value_length(0);
                DataType::FixedSizeBinary(length)
            }
            _ => return array,
        };
        cast(&array, &to).unwrap()
    }

    /// Elements one behind the other; a null stands for some, which nobody sees.
    fn elements(&mut self, values: &[Value]) -> (OffsetBuffer<i32>, Vec<Value>) {
        let (mut lengths, mut elements) = (Vec::new(), Vec::new());
        for value in values {
            let length = if let Value::Many(many) = value {
                elements.extend_from_slice(many);
                many.len()
            } else {
                let hidden = usize::from(self.choose(3));
                elements.extend(vec![Value::Null; hidden]);
                hidden
            };
            lengths.push(length);
        }
        (OffsetBuffer::from_lengths(lengths), elements)
    }

    fn list(&mut self, list: ListArray) -> ArrayRef {
        let DataType::List(field) = list.data_type() else { unreachable!() };
        let field = Arc::clone(field);
        let to = match self.choose(5) {
            1 => DataType::LargeList(field),
            2 => DataType::ListView(field),
            3 => DataType::LargeListView(field),
            4 if list.len() == 1 && list.null_count() == 0 => {
                let (length, values) = (list.value_length(0), list.value(0));
                return match length {
                    0 => Arc::new(list),
                    _ => Arc::new(FixedSizeListArray::new(field, length, values, None)),
                };
            }
            _ => return Arc::new(list),
        };
        cast(&list, &to).unwrap()
    }

    fn fields(
        &mut self,
        of: &[(String, Type)],
        values: &[Value],
        nulls: Option<NullBuffer>,
    ) -> StructArray {
        let columns: Vec<_> = (0..of.len())
            .map(|index| {
                let column: Vec<_> = values
                    .iter()
                    .map(|it| match it {
                        Value::Many(fields) => fields[index].clone(),
                        _ => Value::Null,
                    })
                    .collect();
                self.array(&of[index].1, &column)
            })
            .collect();
        let fields = of
            .iter()
            .zip(&columns)
            .map(|((name, _), column)| Field::new(name, column.data_type().clone(), true));
        if columns.is_empty() {
            return StructArray::new_empty_fields(values.len(), nulls);
        }
        StructArray::new(fields.collect::<Fields>(), columns, nulls)
    }
}

fn pair(of: Value) -> (Value, Value) {
    let Value::Many(mut pair) = of else { unreachable!() };
    let value = pair.pop().unwrap();
    (pair.pop().unwrap(), value)
}

pub(super) fn batch(columns: &[(String, Type)], rows: &[Vec<Value>], layout: &[u8]) -> RecordBatch {
    let (mut choices, mut fields, mut arrays) = (layout.iter().copied(), Vec::new(), Vec::new());
    let mut layouts = Layouts(&mut choices);
    for (index, (name, of)) in columns.iter().enumerate() {
        let values: Vec<_> = rows.iter().map(|it| it[index].clone()).collect();
        let array = layouts.array(of, &values);
        fields.push(Field::new(name, array.data_type().clone(), true));
        arrays.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).unwrap()
}
