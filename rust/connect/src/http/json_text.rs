// SPDX-License-Identifier: Apache-2.0
//! Texts, arrays and objects as JSON writes them.

/// Appends a text with its quotes.
pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    #[expect(
        clippy::let_underscore_must_use,
        reason = "writing a text into a vector does not fail"
    )]
    let _ = serde_json::to_writer(out, text);
}

/// Appends what `items` are written as, between brackets; ends with the first that cannot be.
pub(super) fn write_items<T>(
    brackets: [u8; 2],
    items: impl IntoIterator<Item = T>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    out.push(brackets[0]);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(item, out)?;
    }
    out.push(brackets[1]);
    Some(())
}
