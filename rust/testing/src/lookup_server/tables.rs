// SPDX-License-Identifier: Apache-2.0
//! What a server serves.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::{BufMut, Bytes, BytesMut};

/// Values of one table by key, as JSON text.
pub(super) type Table = HashMap<String, Bytes>;

/// Tables by name. Any thread may add one while others are read.
#[derive(Debug, Default)]
pub(super) struct Tables(RwLock<HashMap<String, Arc<Table>>>);

impl Tables {
    /// Adds a table, in place of the one with that name.
    pub(super) fn add(&self, name: String, table: Table) {
        // Nothing panics while the lock is held, so poison carries no news.
        let mut tables = self.0.write().unwrap_or_else(PoisonError::into_inner);
        tables.insert(name, Arc::new(table));
    }

    /// Finds the table with that name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Table>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// The answer to a batched lookup.
#[derive(Debug)]
pub(super) struct Values {
    /// A JSON array: a value or null for each key.
    pub(super) json: Bytes,
    /// Number of keys found.
    pub(super) hits: usize,
}

/// Looks up many keys at once.
pub(super) fn find_many(table: &Table, keys: &[String]) -> Values {
    let mut hits = 0;
    let mut json = BytesMut::with_capacity(2 + 16 * keys.len());
    json.put_u8(b'[');
    for (index, key) in keys.iter().enumerate() {
        if index > 0 {
            json.put_u8(b',');
        }
        let value = table.get(key);
        hits += usize::from(value.is_some());
        json.put_slice(value.map_or(b"null", |value| value));
    }
    json.put_u8(b']');
    Values { json: json.freeze(), hits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_has_null_for_each_unknown_key() {
        let table = Table::from([("a".to_owned(), Bytes::from_static(b"{\"x\":1}"))]);

        let values = find_many(&table, &["b".to_owned(), "a".to_owned()]);

        assert_eq!((&values.json[..], values.hits), (&b"[null,{\"x\":1}]"[..], 1));
    }

    #[test]
    fn empty_batch_is_an_empty_array() {
        assert_eq!(&find_many(&Table::new(), &[]).json[..], b"[]");
    }

    #[test]
    fn table_added_again_takes_the_place_of_the_first() {
        let tables = Tables::default();
        tables.add("t".to_owned(), Table::from([("a".to_owned(), Bytes::from_static(b"1"))]));

        tables.add("t".to_owned(), Table::new());

        assert!(tables.find("t").unwrap().is_empty());
        assert!(tables.find("u").is_none());
    }
}
