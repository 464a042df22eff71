// SPDX-License-Identifier: Apache-2.0
//! Tests of keys by content. What is proven is that an encoding can be read back, whatever the types are, so
//! that no two inputs have one; and that all layouts of the same values have the same.

mod layouts;

use std::collections::HashMap;

use arrow::array::{
    ArrayData, ArrayRef, BinaryArray, DictionaryArray, Float64Array, Int16Array, Int32Array,
    ListArray, StringArray, TimestampMicrosecondArray, UnionArray, record_batch,
};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::UnionFields;
use proptest::collection::vec;
use proptest::prelude::*;

use self::layouts::{Type, Value, any_rows, batch, plain};

use super::*;

// -- reading an encoding back

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, many: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(many);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn count(&mut self) -> usize {
        let (mut count, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            count |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return count;
            }
            shift += 7;
        }
    }

    fn bytes(&mut self) -> &'a [u8] {
        let count = self.count();
        self.take(count)
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }

    fn head(&mut self) -> (Vec<u8>, Vec<(String, Type)>) {
        let (function, columns) = (self.bytes().to_vec(), self.count());
        (function, (0..columns).map(|_| (self.text(), self.any_type())).collect())
    }

    fn any_type(&mut self) -> Type {
        assert_eq!(self.take(MARKS.len()), [0; MARKS.len()]);
        let number = self.byte();
        match number {
            15 => Type::Text,
            16 => Type::Bytes,
            24 => Type::List(Box::new(self.any_type())),
            25 => {
                let fields = self.count();
                Type::Struct((0..fields).map(|_| (self.text(), self.any_type())).collect())
            }
            26 => {
                let key = Box::new(self.any_type());
                Type::Map(key, Box::new(self.any_type()))
            }
            // Those that have parts, by what is written of them.
            number => {
                let mut parts = vec![number];
                parts.extend(self.take(match number {
                    17 | 22 | 23 => 2,
                    18..=21 => 1,
                    _ => 0,
                }));
                let found = plain().into_iter().find(|it| {
                    let mut written = Vec::new();
                    write_data_type(it, &mut written).unwrap();
                    written == parts
                });
                Type::Plain(found.unwrap())
            }
        }
    }

    fn value(&mut self, of: &Type) -> Value {
        match self.byte() {
            0 => return Value::Null,
            present => assert_eq!(present, 1),
        }
        match of {
            Type::Plain(DataType::Boolean) => Value::Bits(self.take(1).to_vec()),
            Type::Plain(of) => Value::Bits(self.take(of.primitive_width().unwrap()).to_vec()),
            Type::Text | Type::Bytes => Value::Bits(self.bytes().to_vec()),
            Type::List(element) => {
                let count = self.count();
                Value::Many((0..count).map(|_| self.value(element)).collect())
            }
            Type::Struct(fields) => {
                Value::Many(fields.iter().map(|(_, it)| self.value(it)).collect())
            }
            Type::Map(key, value) => {
                let count = self.count();
                Value::Many((0..count).map(|_| self.pair(key, value)).collect())
            }
        }
    }

    fn pair(&mut self, key: &Type, value: &Type) -> Value {
        assert_eq!(self.byte(), 1);
        Value::Many(vec![self.value(key), self.value(value)])
    }
}

/// The encoding of each row of a batch.
fn encoded(batch: &RecordBatch) -> Vec<Vec<u8>> {
    let columns: Vec<_> =
        batch.columns().iter().map(|it| Values::open(it.as_ref()).unwrap()).collect();
    let row = |row: usize| {
        let mut out = Vec::new();
        for column in &columns {
            column.write(row, &mut out);
        }
        out
    };
    (0..batch.num_rows()).map(row).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(700))]

    #[test]
    fn an_encoding_can_be_read_back_so_no_two_inputs_have_one(
        (columns, rows) in any_rows(),
        function in vec(any::<u8>(), 0..200),
        layout in vec(any::<u8>(), 0..67),
    ) {
        let batch = batch(&columns, &rows, &layout);
        let head = head(&function, batch.schema_ref()).unwrap();
        let mut reader = Reader(&head);
        prop_assert_eq!(reader.head(), (function, columns.clone()));
        prop_assert!(reader.0.is_empty());
        for (row, bytes) in rows.iter().zip(encoded(&batch)) {
            let mut reader = Reader(&bytes);
            let read: Vec<_> = columns.iter().map(|(_, of)| reader.value(of)).collect();
            prop_assert_eq!(&read, row);
            prop_assert!(reader.0.is_empty());
        }
    }

    #[test]
    fn all_layouts_of_the_same_values_have_the_same_keys(
        (columns, rows) in any_rows(),
        one in vec(any::<u8>(), 0..67),
        other in vec(any::<u8>(), 0..67),
    ) {
        let keys = |layout: &[u8]| content_keys(b"f", &batch(&columns, &rows, layout)).unwrap();
        prop_assert_eq!(keys(&one), keys(&other));
    }
}

// -- what users would notice

fn keys(batch: &RecordBatch) -> Vec<String> {
    let keys = content_keys(b"a function", batch).unwrap();
    let shown = |it: Option<&[u8]>| {
        it.unwrap().iter().map(|it| format!("{it:02x}")).collect::<Vec<_>>().concat()
    };
    keys.iter().map(shown).collect()
}

fn keys_of(name: &str, array: impl Array + 'static) -> Vec<String> {
    let field = Field::new(name, array.data_type().clone(), true);
    keys(&RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(array)]).unwrap())
}

fn are_different(mut keys: Vec<String>) -> bool {
    let all = keys.len();
    keys.sort_unstable();
    keys.dedup();
    keys.len() == all
}

/// They are on people's disks.
#[test]
fn keys_are_what_they_were() {
    let batch = record_batch!(
        ("id", Int64, [Some(7), None]),
        ("name", Utf8, [Some("Gr\u{fc}n"), Some("")]),
        ("price", Float64, [Some(-0.0), Some(f64::INFINITY)])
    )
    .unwrap();
    assert_eq!(keys(&batch), PINNED);

    let mut types = Vec::new();
    for data_type in plain() {
        types.extend([data_type.clone(), DataType::new_list(data_type, true)]);
    }
    let fields = types.into_iter().enumerate();
    let fields = fields.map(|(at, it)| Field::new(format!("c{at}"), it, true));
    let batch = RecordBatch::new_empty(Arc::new(Schema::new(fields.collect::<Vec<_>>())));
    let head = head(b"", batch.schema_ref()).unwrap();
    assert_eq!(blake3::hash(&head).to_hex()[..32], *PINNED_TYPES);
}

const PINNED: [&str; 2] = ["701cb918661cbafa03cfac07daf06b99", "03506ef81913ade6b12380bd3a42b047"];
const PINNED_TYPES: &str = "408e60315b7e74a5db64630c51767894";

#[test]
fn what_is_not_the_same_has_another_key() {
    let texts =
        [Some("ab"), Some("a"), Some(""), None, Some("a\0"), Some("\u{e4}"), Some("a\u{308}")];
    assert!(are_different(keys_of("a", StringArray::from(texts.to_vec()))));
    let nans = [0x7ff8_0000_0000_0000, 0x7ff8_0000_0000_0001, 0xfff8_0000_0000_0000];
    let doubles = nans.map(f64::from_bits).into_iter().chain([0.0, -0.0, 1.0, f64::MIN_POSITIVE]);
    assert!(are_different(keys_of("a", doubles.map(Some).collect::<Float64Array>())));
    let micros = TimestampMicrosecondArray::from(vec![1, 2, 1000, 1_000_000]);
    assert!(are_different(keys_of("a", micros.clone())));

    // By name, type, and where one text ends and the next one begins.
    let mut all = keys_of("a", Int32Array::from(vec![1]));
    all.extend(keys_of("b", Int32Array::from(vec![1])));
    all.extend(keys_of("a", Int16Array::from(vec![1])));
    all.extend(keys_of("a", StringArray::from(vec!["1"])));
    all.extend(keys_of("a", BinaryArray::from(vec![&b"1"[..]])));
    all.extend(keys_of("a", TimestampMicrosecondArray::from(vec![1])));
    all.extend(keys_of("a", TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC")));
    all.extend(keys(&record_batch!(("a", Utf8, ["xy"]), ("b", Utf8, ["z"])).unwrap()));
    all.extend(keys(&record_batch!(("a", Utf8, ["x"]), ("b", Utf8, ["yz"])).unwrap()));
    all.extend(keys(&record_batch!(("b", Utf8, ["x"]), ("a", Utf8, ["yz"])).unwrap()));
    assert!(are_different(all));

    let zones = ["UTC", "+00:00", "Asia/Kathmandu"].map(|it| micros.clone().with_timezone(it));
    let [one, two, three] = zones.map(|it| keys_of("a", it));
    assert!(one == two && two == three);
    assert_ne!(keys_of("a", micros), one);

    let batch = record_batch!(("a", Int32, [1])).unwrap();
    assert_ne!(content_keys(b"f", &batch).unwrap(), content_keys(b"g", &batch).unwrap());
}

#[test]
fn a_text_that_is_not_utf_8_has_a_key_of_its_own() {
    let offsets = OffsetBuffer::<i32>::from_lengths([1, 1, 3]);
    let bytes = Buffer::from_vec(b"\xff\xfe\xef\xbf\xbd".to_vec());
    let data = ArrayData::builder(DataType::Utf8)
        .len(3)
        .add_buffer(offsets.into_inner().into_inner())
        .add_buffer(bytes);
    // Spark's strings may have them.
    #[expect(unsafe_code, reason = "no safe way makes it")]
    // SAFETY: nobody reads them as texts.
    let data = unsafe { data.build_unchecked() };
    assert!(are_different(keys_of("a", StringArray::from(data))));
}

#[test]
fn a_struct_of_two_is_no_variant() {
    let of = |marks: &[(&str, &str)]| {
        let marks = marks.iter().map(|(key, it)| ((*key).to_owned(), (*it).to_owned()));
        let marks: HashMap<String, String> = marks.collect();
        let field = |name: &str| Field::new(name, DataType::Binary, false);
        let fields = vec![field("value"), field("metadata").with_metadata(marks)];
        let column = || Arc::new(BinaryArray::from(vec![&b"x"[..]])) as ArrayRef;
        keys_of("a", StructArray::new(fields.into(), vec![column(), column()], None))
    };
    let plain = of(&[]);
    assert_eq!(plain, of(&[("comment", "of the user")]));
    let marked = [
        of(&[("variant", "true")]),
        of(&[("ARROW:extension:name", "true")]),
        of(&[("ARROW:extension:metadata", "true")]),
    ];
    assert!(are_different([marked.concat(), plain].concat()));
}

#[test]
fn a_dictionary_without_values_has_nulls_alone() {
    let keys = Int16Array::from(vec![None, None]);
    let empty = DictionaryArray::new(keys, Arc::new(StringArray::new_null(0)));
    assert_eq!(keys_of("a", empty), keys_of("a", StringArray::new_null(2)));
}

#[test]
fn a_type_without_an_encoding_is_refused_by_its_column() {
    let fields = UnionFields::from_fields(vec![Field::new("x", DataType::Int32, true)]);
    let union = UnionArray::try_new(
        fields,
        ScalarBuffer::from(vec![0_i8]),
        None,
        vec![Arc::new(Int32Array::from(vec![1]))],
    )
    .unwrap();
    let field = Arc::new(Field::new("element", union.data_type().clone(), true));
    let list = ListArray::new(field, OffsetBuffer::from_lengths([1]), Arc::new(union), None);
    let field = Field::new("many", list.data_type().clone(), true);
    let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(list)]);
    let refused = content_keys(b"", &batch.unwrap()).unwrap_err().to_string();
    assert!(refused.starts_with("column `many` has or contains the type `Union("), "{refused}");
}
