// SPDX-License-Identifier: Apache-2.0
//! Tests of what belongs to which row of a reply.

use std::num::NonZeroUsize;

use bytes::Bytes;
use proptest::prelude::*;
use sparkawait_core::queue::{OrderedStreamElementQueue, StreamElementQueue};

use super::*;
use crate::reply_budget::ReplyBudget;

fn reader(id: &str, more: &str) -> ItemReader {
    let description = format!(
        r#"{{"method": "POST", "url": "http://a/b", "returns": "json", "success": [[200, 299]],
            "missing": [404], "connections": 1, "max_response_bytes": 1000, "redirects": 0,
            "client": {{"connect_timeout": 1.0, "read_timeout": 1.0, "version": "auto",
                "streams_per_connection": 1, "compressed": false, "proxy": "none",
                "tls": {{}}}},
            "batch": {{"max_rows": 9, "linger": 0.0, "split_on_error": false, "item": [],
                "id": {id}{more}}}}}"#
    );
    let config: HttpConfig = serde_json::from_str(&description).unwrap();
    ItemReader::new(&config).unwrap().unwrap()
}

fn by_position(more: &str) -> ItemReader {
    reader("null", more)
}

fn by_index() -> ItemReader {
    reader(r#"{"path": "i"}"#, "")
}

fn by_name() -> ItemReader {
    reader(r#"{"path": "id", "template": "{id}"}"#, "")
}

fn items(names: &[&str]) -> Vec<Item> {
    let mut queue =
        OrderedStreamElementQueue::<(), ()>::new(NonZeroUsize::new(names.len()).unwrap());
    let of = |name: &&str| Item {
        attempt: AttemptId { entry: queue.try_put(()).unwrap(), attempt: 1 },
        text: Bytes::new(),
        id: Bytes::copy_from_slice(name.as_bytes()),
        key: Bytes::new(),
        halvings: 0,
    };
    names.iter().map(of).collect()
}

/// What each row has: its item, `-` for a miss, or the message of its failure.
fn shown(reader: &ItemReader, names: &[&str], reply: &str) -> Vec<String> {
    let found = Found {
        status: 200,
        headers: Vec::new(),
        body: Bytes::copy_from_slice(reply.as_bytes()),
        _share: Arc::new(ReplyBudget::of_task().share()),
    };
    let (items, mut answered) = (items(names), Vec::new());
    reader.divide(&items, Outcome::Found(found), &mut answered).unwrap();
    assert!(answered.iter().map(|it| it.0).eq(items.iter().map(|it| it.attempt)));
    let shown = |(_, outcome)| match outcome {
        Outcome::Found(found) => String::from_utf8(found.body.to_vec()).unwrap(),
        Outcome::Missed | Outcome::NullKey => "-".to_owned(),
        Outcome::Failed(failed) => format!("{:?} {}", failed.retry, failed.call.message),
    };
    answered.into_iter().map(shown).collect()
}

fn all_fail(shown: &[String], with: &str) -> bool {
    shown.iter().all(|it| it.starts_with("No ") && it.contains(with))
}

#[test]
fn items_without_names_are_in_the_order_of_the_rows_and_as_many() {
    assert_eq!(shown(&by_position(""), &["", ""], "[1,[2]]"), ["1", "[2]"]);
    for reply in ["[1]", "[1,2,3]", "[]"] {
        assert!(all_fail(&shown(&by_position(""), &["", ""], reply), "2 rows"), "{reply}");
    }
    assert!(all_fail(&shown(&by_position(""), &["", ""], r#"{"a":1}"#), "not an array"));
}

#[test]
fn items_that_name_a_position_belong_there() {
    let shown = |reply| shown(&by_index(), &["", "", ""], reply);

    assert_eq!(
        shown(r#"[{"i":2},{"i":0},{"i":"1"}]"#),
        [r#"{"i":0}"#, r#"{"i":"1"}"#, r#"{"i":2}"#]
    );
    let missing = shown(r#"[{"i":2},{"i":0}]"#);
    assert_eq!((missing[0].as_str(), missing[2].as_str()), (r#"{"i":0}"#, r#"{"i":2}"#));
    assert!(missing[1].contains("no result for the row"));
    let twice = shown(r#"[{"i":2},{"i":0},{"i":1},{"i":2}]"#);
    assert_eq!((twice[0].as_str(), twice[1].as_str()), (r#"{"i":0}"#, r#"{"i":1}"#));
    assert!(twice[2].contains("several results"));
    // Rows that are counted from 1 would have one another's.
    for reply in [r#"[{"i":1},{"i":2},{"i":3}]"#, r#"[{"i":0},{},{"i":2}]"#, r#"[{"i":-1}]"#, "[7]"]
    {
        assert!(all_fail(&shown(reply), "`id`"), "{reply}");
    }
}

#[test]
fn items_that_name_their_row_belong_to_it_and_to_no_other() {
    let shown = |reply| shown(&by_name(), &["a", "7"], reply);

    assert_eq!(shown(r#"[{"id":7},{"id":"x"},{"id":"a"}]"#), [r#"{"id":"a"}"#, r#"{"id":7}"#]);
    let one = shown(r#"[{"id":"a"},null,{"no":1}]"#);
    assert_eq!(one[0], r#"{"id":"a"}"#);
    assert!(one[1].contains("no result for the row"));
    assert!(shown(r#"[{"id":"a"},{"id":"a"},{"id":"7"}]"#)[0].contains("several results"));
}

#[test]
fn an_item_may_be_an_error_of_its_row() {
    let reader = by_position(r#", "error": "error", "retry": ["busy", "429"]"#);
    let rows = ["", "", "", "", "", ""];
    let reply = r#"[{"v":1}, {"error":"no"}, {"error":{"type":"busy","at":3}}, {"error":null},
                    {"error":"busy"}, {"error":{"code":429}}]"#;

    let shown = shown(&reader, &rows, reply);

    assert_eq!((shown[0].as_str(), shown[3].as_str()), (r#"{"v":1}"#, r#"{"error":null}"#));
    assert!(shown[1].starts_with("No ") && shown[1].ends_with("is an error: no"));
    assert!([2, 4, 5].iter().all(|row| shown[*row].starts_with("Yes ")), "{shown:?}");
}

#[test]
fn a_status_in_an_item_means_what_that_of_a_response_does() {
    let reader = by_position(r#", "status": "s", "error": "e""#);
    let reply = r#"[{"s":201}, {"s":404}, {"s":503,"e":"full"}, {"s":400}, {"s":"x"}, {"e":true}]"#;

    let shown = shown(&reader, &["", "", "", "", "", ""], reply);

    assert_eq!((shown[0].as_str(), shown[1].as_str()), (r#"{"s":201}"#, "-"));
    assert!(shown[2].starts_with("Yes ") && shown[2].ends_with("503 Service Unavailable: full"));
    assert!(shown[3].starts_with("No ") && shown[3].contains("400"));
    assert!(shown[4].contains("HTTP does not have") && shown[5].contains("is an error"));
}

proptest! {
    #[test]
    fn whatever_a_reply_is_each_row_has_one_outcome_and_never_another_rows(reply in ".{0,60}") {
        for reader in [by_position(""), by_index(), by_name()] {
            prop_assert_eq!(shown(&reader, &["a", "b"], &reply).len(), 2);
        }
    }

    #[test]
    fn named_items_find_their_rows_in_any_order(
        order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle(),
        left_out in prop::collection::hash_set(0..12_usize, 0..4),
    ) {
        let kept = order.iter().filter(|it| !left_out.contains(it));
        let items: Vec<String> = kept.map(|it| format!(r#"{{"i":{it},"id":"n{it}"}}"#)).collect();
        let reply = format!("[{}]", items.join(","));
        let names: Vec<String> = (0..12).map(|it| format!("n{it}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for reader in [by_index(), by_name()] {
            for (row, shown) in shown(&reader, &names, &reply).into_iter().enumerate() {
                if left_out.contains(&row) {
                    prop_assert!(shown.contains("no result for the row"));
                } else {
                    prop_assert_eq!(shown, format!(r#"{{"i":{row},"id":"n{row}"}}"#));
                }
            }
        }
    }
}
