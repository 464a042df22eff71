// SPDX-License-Identifier: Apache-2.0
//! The table finds what a map of all rows finds.

use std::collections::BTreeMap;

use arrow::array::{BooleanArray, FixedSizeBinaryArray, Int64Array};
use proptest::prelude::*;

use super::{FEW, KeyTable};

fn keys(numbers: impl IntoIterator<Item = u32>) -> FixedSizeBinaryArray {
    let keys = numbers.into_iter().map(|it| u128::from(it).to_le_bytes());
    let keys: Vec<_> = keys.collect();
    if keys.is_empty() {
        return FixedSizeBinaryArray::new(
            16,
            arrow::buffer::Buffer::from_vec(Vec::<u8>::new()),
            None,
        );
    }
    FixedSizeBinaryArray::try_from_iter(keys.iter()).unwrap()
}

/// The number of a key, its time, and whether it is a result, a failure, or not to be found.
type Row = (u32, i64, Option<bool>);

fn add(table: &mut KeyTable, file: u32, rows: &[Row]) {
    let times: Int64Array = rows.iter().map(|it| it.1).collect();
    let results: BooleanArray = rows.iter().map(|it| it.2).collect();
    let keys = keys(rows.iter().map(|it| it.0));
    table.add((file, &format!("{file:03}")), 0, &keys, &times, &results);
}

fn found(table: &KeyTable, numbers: std::ops::Range<u32>) -> Vec<Option<i64>> {
    table.find(&keys(numbers)).iter().collect()
}

/// What is found of the rows of all files.
fn model(files: &BTreeMap<u32, Vec<Row>>, newest: bool, key: u32) -> Option<i64> {
    let rows = files
        .iter()
        .flat_map(|(file, rows)| (0_u32..).zip(rows).map(move |(row, it)| (*file, row, *it)));
    let of_key = rows.filter(|(_, _, it)| it.0 == key && it.2.is_some());
    let best = of_key.min_by_key(|(file, row, (_, at, is_result))| {
        (!is_result.unwrap(), if newest { -at } else { *at }, *file, *row)
    });
    best.map(|(file, row, _)| i64::from(file) << 32 | i64::from(row))
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let is_result = prop_oneof![Just(Some(true)), Just(Some(false)), Just(None)];
    prop::collection::vec((0_u32..23, 0_i64..3, is_result), 0..13)
}

proptest! {
    #[test]
    fn what_is_found_is_the_first_row_of_the_files_that_are_there(
        files in prop::collection::vec((rows(), any::<bool>()), 0..13),
        gone in prop::collection::vec(0_u32..13, 0..3),
        newest: bool,
    ) {
        let mut table = KeyTable::new(newest);
        let mut all = BTreeMap::new();
        for (file, (rows, settles)) in (0_u32..).zip(&files) {
            add(&mut table, file, rows);
            all.insert(file, rows.clone());
            if *settles {
                table.settle();
            }
        }
        table.settle();
        let wanted: Vec<_> = (0..23).map(|key| model(&all, newest, key)).collect();
        prop_assert_eq!(found(&table, 0..23), wanted.clone());
        let rows = table.len();
        prop_assert_eq!(table.is_empty(), rows == 0);

        table.forget(&gone);
        // What another file had of a key that is gone is not known any more.
        for (key, (before, place)) in (0..23).zip(wanted.into_iter().zip(found(&table, 0..23))) {
            let is_gone = |it: i64| gone.contains(&u32::try_from(it >> 32).unwrap());
            prop_assert_eq!(place, before.filter(|it| !is_gone(*it)), "{}", key);
        }

        // Rows of files that come later have places of their own.
        let more: Vec<Row> = (0..23).map(|key| (key, 2, Some(true))).collect();
        add(&mut table, 13, &more[..11]);
        table.add((13, "013"), 11, &keys(11..23), &Int64Array::from(vec![2; 12]), &BooleanArray::from(vec![true; 12]));
        table.settle();
        for (key, place) in (0_u32..23).zip(found(&table, 0..23)) {
            let row = place.map(|it| (it >> 32, it & 0xFFFF_FFFF));
            prop_assert!(row.is_some_and(|(file, row)| file < 13 || row == i64::from(key)), "{:?}", row);
        }
    }
}

#[test]
fn fresh_keys_are_sorted_among_the_others_when_they_are_many() {
    let mut table = KeyTable::new(false);
    let few = u32::try_from(FEW).unwrap();
    for file in 0..7 {
        let rows: Vec<Row> = (0..few).map(|it| (file + it * 7, 0, Some(true))).collect();
        add(&mut table, file, &rows);
        table.settle();
    }
    assert_eq!(table.len(), FEW * 7);
    let places = found(&table, 0..few * 7);
    let wanted = (0..few * 7).map(|it| Some(i64::from(it % 7) << 32 | i64::from(it / 7)));
    assert_eq!(places, wanted.collect::<Vec<_>>());
    assert!(table.size() < (table.len() + FEW) * 16 + 7 * 96, "{}", table.size());
}
