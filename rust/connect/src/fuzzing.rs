// SPDX-License-Identifier: Apache-2.0
//! What every parser of this crate must keep to, whatever bytes it is given.
//!
//! Each check takes bytes, and panics if the parser breaks its rule: it compares the parser with
//! another way to the same answer. `rust/fuzz` looks for bytes that break a rule; proptests make
//! up texts that come far; and what fuzzing found worth keeping is checked again by every test run.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a rule that is broken is a panic")]

#[cfg(feature = "redis")]
mod cluster;
mod json;
mod json_path;
#[cfg(feature = "postgres")]
mod placeholders;
#[cfg(feature = "redis")]
mod resp;
mod retry_after;
mod template;
mod text;

#[cfg(feature = "redis")]
pub use cluster::cluster;
pub use json::json;
pub use json_path::json_path;
#[cfg(feature = "postgres")]
pub use placeholders::placeholders;
#[cfg(feature = "redis")]
pub use resp::resp;
pub use retry_after::retry_after;
pub use template::template;
pub use text::text;

#[cfg(all(test, feature = "postgres", feature = "redis"))]
mod tests {
    use std::fs;
    use std::path::Path;

    type Check = fn(&[u8]);

    /// The checks by the names of their targets.
    const CHECKS: [(&str, Check); 8] = [
        ("cluster", super::cluster),
        ("json", super::json),
        ("json_path", super::json_path),
        ("placeholders", super::placeholders),
        ("resp", super::resp),
        ("retry_after", super::retry_after),
        ("template", super::template),
        ("text", super::text),
    ];

    #[test]
    fn what_fuzzing_found_keeps_to_the_rules() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        for (target, check) in CHECKS {
            let files = fs::read_dir(corpus.join(target)).unwrap();
            let checked = files.map(|file| check(&fs::read(file.unwrap().path()).unwrap()));
            assert!(checked.count() > 0, "no corpus of `{target}`");
        }
    }
}
