// SPDX-License-Identifier: Apache-2.0
//! Orders that are random and always the same.

/// Shuffles `order` within windows of `window`, from a fixed seed.
///
/// # Panics
///
/// If `window` is zero.
pub fn shuffle(order: &mut [usize], window: usize) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for part in order.chunks_mut(window) {
        for last in (1..part.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            part.swap(last, usize::try_from(state >> 33).unwrap_or(0) % (last + 1));
        }
    }
}

/// Returns `0..count`, shuffled.
pub fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    shuffle(&mut order, count.max(1));
    order
}
