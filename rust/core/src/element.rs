// SPDX-License-Identifier: Apache-2.0
//! What flows through the operator: records and watermarks.

use std::num::NonZeroU64;

/// An event time, in the unit of the source (Spark: microseconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// The promise that no later element has a smaller timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watermark(pub Timestamp);

/// The key of a record in key-ordered mode, already reduced to 64 bits.
///
/// Two different keys with the same value are served as one key: that costs
/// parallelism, never order. An `Option<Key>` takes no more memory than a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(NonZeroU64);

impl Key {
    /// Makes a key of a hash, or of a small number; 0 is the same key as the largest number.
    #[inline]
    pub const fn new(hash: u64) -> Self {
        Self(match NonZeroU64::new(hash) {
            Some(hash) => hash,
            None => NonZeroU64::MAX,
        })
    }

    /// Returns the number that the key was made of, unless that was 0.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0.get()
    }
}

/// A value with the event time that its results will carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRecord<T> {
    /// What the asynchronous function is called with.
    pub value: T,
    /// `None` if the input had none.
    pub timestamp: Option<Timestamp>,
}

impl<T> StreamRecord<T> {
    /// Makes a record with an optional event time.
    pub fn new(value: T, timestamp: Option<Timestamp>) -> Self {
        Self { value, timestamp }
    }
}

/// A record or a watermark, in the order of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamElement<R> {
    /// A record, or what stands for one.
    Record(R),
    /// A watermark between records.
    Watermark(Watermark),
}

impl<R> StreamElement<R> {
    /// Borrows the record.
    pub fn as_ref(&self) -> StreamElement<&R> {
        match self {
            Self::Record(record) => StreamElement::Record(record),
            Self::Watermark(watermark) => StreamElement::Watermark(*watermark),
        }
    }

    /// Replaces the record by `map(record)`; a watermark stays.
    pub fn map<S>(self, map: impl FnOnce(R) -> S) -> StreamElement<S> {
        match self {
            Self::Record(record) => StreamElement::Record(map(record)),
            Self::Watermark(watermark) => StreamElement::Watermark(watermark),
        }
    }
}
