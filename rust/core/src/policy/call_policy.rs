// SPDX-License-Identifier: Apache-2.0
//! Who may call now: the seam between what makes calls and what bounds them.

use super::costs::Costs;
use super::ended_call::EndedCall;
use crate::time::ProcessingTime;

/// What bounds the calls of one destination, of the shape of quinn's `congestion::Controller`.
///
/// It knows of calls and of time, and of nothing that they are made for. So the
/// same policy stands above the layers of a function, where a [`ChannelTable`]
/// asks it before it lets a record's call start, and below them, where it is
/// asked once per request that is really sent: what is answered from a cache pays
/// nothing there. Whoever owns one tells it of each call that starts and ends, and
/// starts one only
///
/// * while fewer than [`window`](Self::window) are in flight, and
/// * not before [`ready_at`](Self::ready_at).
///
/// [`ChannelTable`]: crate::flow::ChannelTable
pub trait CallPolicy {
    /// Is told that a call starts which costs as much.
    fn on_start(&mut self, now: ProcessingTime, costs: &Costs);

    /// Learns from a call that ended.
    fn on_end(&mut self, call: &EndedCall);

    /// Returns how many calls may be in flight; `u32::MAX` if it sets no bound.
    ///
    /// With 0 none starts. If none is in flight then, `ready_at` has to say when that changes.
    fn window(&self, now: ProcessingTime) -> u32;

    /// Returns when a call that costs as much may start if nothing happens until then; `now` or a
    /// point before it: at once.
    fn ready_at(&self, now: ProcessingTime, costs: &Costs) -> ProcessingTime;

    /// Returns whether each call has to be told of, and asked for; otherwise what `window` says
    /// holds until a call has ended.
    fn is_watching(&self, now: ProcessingTime) -> bool;
}
