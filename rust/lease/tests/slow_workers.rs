// SPDX-License-Identifier: Apache-2.0
//! A worker that gets the processor now and then uses its limit, and no more than that in any window.

use sparkawait_lease::{Answer, Asked, EVERY, Server, Share, Terms};

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLISECOND;
/// Permits in a second, and at once.
const RATE: u64 = 500;
const TERMS: Terms = Terms::Rate { permits: RATE, period: SECOND, burst: RATE };
/// So long it runs each time.
const TURN: u64 = 7 * MILLISECOND;

/// Returns what part of the limit it uses that runs so often, in per cent. `is_late`: an answer is there in
/// its next turn only.
fn used(every: u64, is_late: bool) -> u64 {
    let (mut server, mut share) = (Server::default(), Share::new(TERMS, "slow", None, true, 0));
    let mut answer: Option<(Answer, u64)> = None;
    let (mut speaks_at, mut begun) = (0, Vec::new());
    let ends = 31 * SECOND;
    for now in (0..ends).step_by(500).filter(|now| now % every < TURN) {
        let turn = now / every;
        if let Some((told, _)) = answer.take_if(|it| !is_late || it.1 < turn) {
            share.answered(told, now, speaks_at);
        }
        while matches!(share.ask(1, now), Asked::Granted) {
            begun.push(now);
            share.end(1);
        }
        let is_due = speaks_at <= now && share.due_at().is_some_and(|it| it <= now);
        if answer.is_none() && is_due {
            speaks_at = now + EVERY;
            answer = Some((server.exchange("limit", TERMS, &share.exchange(now), now), turn));
        }
    }
    // In any window: a bucket that empties at the rate never has more than may be taken at once.
    let (mut full, mut last) = (0_u64, 0);
    for at in &begun {
        full = full.saturating_sub(RATE * (at - last)) + SECOND;
        last = *at;
        assert!(full <= (RATE + 1) * SECOND, "every {every} us, late: {is_late}");
    }
    let behind = begun.iter().filter(|it| **it > SECOND).count() as u64;
    behind * SECOND * 100 / (RATE * (ends - SECOND))
}

#[test]
fn a_worker_that_gets_the_processor_now_and_then_uses_its_limit() {
    let milliseconds = |it: u64| it * MILLISECOND;
    let late = [190, 230, 350, 390].map(|it| used(milliseconds(it), true));
    assert!(late.iter().zip([97, 97, 85, 80]).all(|(found, least)| *found >= least), "{late:?}");
    let at_once = [190, 230, 350, 450, 700].map(|it| used(milliseconds(it), false));
    let least = [97, 97, 85, 70, 55];
    assert!(at_once.iter().zip(least).all(|(found, least)| *found >= least), "{at_once:?}");
}
